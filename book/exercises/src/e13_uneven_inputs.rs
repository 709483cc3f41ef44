//! Uneven inputs (chapter: join.md)
//!
//! Make one step with each of this rank's batches, although other ranks may have more batches, or fewer. Leave none
//! out, and let no rank wait forever. Use `JoinOptions::default()`. Return the number of this rank's steps. The loss of
//! a batch is `model.forward(|weight| product(weight, batch))?`.

use crate::prelude::*;

pub fn uneven_inputs(model: &Ddp, optimizer: &mut Sgd, batches: &[Tensor]) -> Result<usize> {
    todo!("train within `model.join`")
}

pub fn check(
    group: &ProcessGroup,
    uneven_inputs: impl Fn(&Ddp, &mut Sgd, &[Tensor]) -> Result<usize>,
) -> Result<()> {
    let (vs, weight) = one_weight(&[1.0]);
    let model = DistributedDataParallel::new(weight.shallow_clone(), &vs, group)?;
    let mut optimizer = Sgd::new(&vs, SgdOptions { lr: 1.0, ..Default::default() })?;
    let own = [&[2f32, 4.0, 8.0][..], &[6.0]][group.rank()];
    let batches: Vec<_> = own.iter().map(|batch| Tensor::from_slice(&[*batch])).collect();
    let steps = uneven_inputs(&model, &mut optimizer, &batches)?;
    agree_equal(group, "the number of steps", steps, own.len())?;
    agree(group, "the weight", &weight, &Tensor::from_slice(&[1.0 - 4.0 - 2.0 - 4.0]))
}
