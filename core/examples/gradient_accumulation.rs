//! Four batches make one step: exchanged after each of them, and once.
//!
//! ```text
//! cargo launch -n 2 -- cargo run -rq -p tch-parallel --example gradient_accumulation
//! ```

use anyhow::Result;
use report::say;
use std::sync::{Arc, atomic::AtomicUsize, atomic::Ordering};
use tch::{Kind, Tensor, nn::ModuleT, nn::VarStore};
use tch_parallel::distributed::hooks::{self, AllReduce, CommHook};
use tch_parallel::distributed::{DdpOptions, DistributedDataParallel, ProcessGroup};
use tch_parallel::nn::{LinearOptions, linear};

const BATCHES: usize = 4;

fn main() -> Result<()> {
    let group = ProcessGroup::from_env()?;
    let after_each = gradient(&group, false)?;
    let once = gradient(&group, true)?;
    let difference = f64::try_from((after_each - once).abs().max())?;
    say(&group, format!("largest difference between the gradients: {difference:.0e}"));
    Ok(())
}

fn gradient(group: &ProcessGroup, no_sync: bool) -> Result<Tensor> {
    tch::manual_seed(group.rank() as i64);
    let vs = VarStore::new(group.device());
    let layer = linear(vs.root(), 100, 10, LinearOptions::default());
    let (comm_hook, exchanged) = count_bytes();
    let options = DdpOptions { comm_hook: Some(comm_hook), ..Default::default() };
    let model = DistributedDataParallel::with_options(layer, &vs, group, options)?;

    // ANCHOR: accumulate
    for batch in 1..=BATCHES {
        let x = Tensor::randn([32, 100], (Kind::Float, group.device()));
        // Only the last batch's backward pass exchanges what has come together.
        let _at_home = (no_sync && batch < BATCHES).then(|| model.no_sync());
        let loss = model.forward_t(&x, true).square().mean(Kind::Float) / BATCHES as f64;
        model.backward(&loss)?;
    }
    // ANCHOR_END: accumulate
    let bytes = exchanged.load(Ordering::Relaxed);
    say(group, format!("no_sync {no_sync}: {bytes} bytes exchanged"));
    Ok(vs.trainable_variables()[0].grad())
}

/// A hook, and how much the rank has handed over to it for exchange.
fn count_bytes() -> (Box<dyn CommHook>, Arc<AtomicUsize>) {
    let bytes = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&bytes);
    let hook = hooks::from_fn("count and average", move |group, bucket| {
        let buffer = bucket.buffer()?;
        counted.fetch_add(buffer.numel() * buffer.kind().elt_size_in_bytes(), Ordering::Relaxed);
        AllReduce.start(group, bucket)
    });
    (Box::new(hook), bytes)
}
