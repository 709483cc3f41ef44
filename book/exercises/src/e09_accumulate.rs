//! Accumulate gradients without an exchange (chapter: ddp-inside.md)
//!
//! Make one gradient from several batches, and exchange it only once, in the last backward pass. It must be the
//! gradient of the mean of the batches' losses. A batch's loss is
//! `model.forward(|weight| product(weight, batch))?`.

use crate::prelude::*;
use std::sync::atomic::{AtomicUsize, Ordering};

pub fn accumulate(model: &Ddp, batches: &[Tensor]) -> Result<()> {
    todo!("run both passes of each batch, all but the last under `no_sync`")
}

pub fn check(group: &ProcessGroup, accumulate: fn(&Ddp, &[Tensor]) -> Result<()>) -> Result<()> {
    static EXCHANGES: AtomicUsize = AtomicUsize::new(0);
    EXCHANGES.store(0, Ordering::Relaxed);
    let hook = hooks::from_fn("counting", |group, bucket| {
        EXCHANGES.fetch_add(1, Ordering::Relaxed);
        hooks::CommHook::start(&mut hooks::AllReduce, group, bucket)
    });
    let options = DdpOptions { comm_hook: Some(Box::new(hook)), ..Default::default() };
    let (vs, weight) = one_weight(&[1.0]);
    let model = DistributedDataParallel::with_options(weight.shallow_clone(), &vs, group, options)?;
    let own = group.rank() as f64 + 1.0;
    accumulate(&model, &[1.0, 2.0, 6.0].map(|batch| Tensor::from_slice(&[(batch * own) as f32])))?;
    agree_equal(group, "the number of exchanges", EXCHANGES.load(Ordering::Relaxed), 1)?;
    agree(group, "the gradient", &weight.grad(), &Tensor::from_slice(&[4.5]))
}
