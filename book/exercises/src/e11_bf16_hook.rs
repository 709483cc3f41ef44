//! A communication hook that sends 16 bits (chapter: communication-hooks.md)
//!
//! Start to exchange the bucket's gradients as `Kind::BFloat16`. Return a closure, `Ok(Box::new(move || …))`, that
//! waits for the exchange and returns the mean of the gradients as `Kind::Float`.

use crate::prelude::*;

pub fn bf16(group: &ProcessGroup, bucket: &mut GradBucket<'_>) -> tch_parallel::Result<Finish> {
    todo!("start an all-reduce of the converted buffer")
}

pub fn check(
    group: &ProcessGroup,
    bf16: impl Fn(&ProcessGroup, &mut GradBucket<'_>) -> tch_parallel::Result<Finish> + Send + 'static,
) -> Result<()> {
    let hook = hooks::from_fn("exercise", bf16);
    let options = DdpOptions { comm_hook: Some(Box::new(hook)), ..Default::default() };
    let (vs, weight) = one_weight(&[1.0; 3]);
    let model = DistributedDataParallel::with_options(weight.shallow_clone(), &vs, group, options)?;
    let own = group.rank() as f64 + 1.0;
    // The last ones add up to 257, which bf16 does not have.
    let batch = [1.001 * own, -2.0 * own, [256.0, 1.0][group.rank()]];
    let batch = Tensor::from_slice(&batch).to_kind(Kind::Float);
    model.backward(&model.forward(|weight| product(weight, &batch))?)?;
    let expected = Tensor::from_slice(&[1.5, -3.0, 128.0]);
    agree(group, "the mean of gradients that had lost their last bits", &weight.grad(), &expected)
}
