//! A contrastive loss with the negatives of all ranks (chapter: pytorch-names.md)
//!
//! Row i of `images` belongs to row i of `texts`; all other texts, also those of other ranks, are negatives. Return the
//! cross entropy of the similarities: the scalar products of this rank's images with the texts of all ranks, in the
//! order of ranks. The gradient must also reach the texts of other ranks, so use a collective of `functional`.

use crate::prelude::*;

pub fn contrastive_loss(group: &ProcessGroup, images: &Tensor, texts: &Tensor) -> Result<Tensor> {
    todo!("gather the texts, and find out which column belongs to which row")
}

pub fn check(
    group: &ProcessGroup,
    contrastive_loss: impl Fn(&ProcessGroup, &Tensor, &Tensor) -> Result<Tensor>,
) -> Result<()> {
    let all = [0.0, 1.0].map(|phase| {
        let numbers = Tensor::arange(12, (Kind::Float, Device::Cpu)) * 0.7 + phase;
        numbers.sin().view([4, 3]).set_requires_grad(true)
    });
    let labels = Tensor::arange(4, (Kind::Int64, Device::Cpu));
    all[0].matmul(&all[1].tr()).cross_entropy_for_logits(&labels).backward();
    let part = |it: &Tensor| it.chunk(2, 0).swap_remove(group.rank());
    let own = [0, 1].map(|at: usize| part(&all[at]).detach().set_requires_grad(true));
    contrastive_loss(group, &own[0], &own[1])?.backward();
    for (what, own, all) in [("images", &own[0], &all[0]), ("texts", &own[1], &all[1])] {
        let half = own.grad() / 2.0;
        agree(group, &format!("half the gradient of the {what}"), &half, &part(&all.grad()))?;
    }
    Ok(())
}
