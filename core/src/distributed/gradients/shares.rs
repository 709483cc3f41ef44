//! What each virtual rank of a rank computes with.

use super::ddp::DistributedDataParallel;
use super::virtual_ranks::VirtualRanks;
use crate::{Result, Tensors, check};
use tch::Tensor;
use tch_parallel_base::tensors::{fill, list};

impl<M> DistributedDataParallel<M> {
    /// The parts of a batch, each for one of this rank's [`virtual_ranks`](super::DdpOptions::virtual_ranks); without these,
    /// the batch itself. Each must have a forward pass and a [`backward`](Self::backward), and the last one's exchanges
    /// the gradients of all. A loop that ends earlier leaves gradients and buffers as if it had not begun, and the
    /// generators the same on all ranks. So keep the iterator until then.
    ///
    /// A batch has equally many samples for each virtual rank, in the order of a sampler of
    /// [`Shard::with_virtual_ranks`](crate::data::Shard::with_virtual_ranks). The random generators draw for virtual
    /// rank `v` as after `manual_seed(seed + v)`, so the seeds of two steps must be at least as far apart as there
    /// are virtual ranks.
    ///
    /// ```
    /// use tch::{Kind, Tensor, nn::{self, ModuleT}};
    /// use tch_parallel::distributed::{DdpOptions, DistributedDataParallel, ProcessGroup};
    ///
    /// let group = ProcessGroup::from_env()?;
    /// let vs = nn::VarStore::new(group.device());
    /// let module = nn::linear(vs.root(), 4, 1, Default::default());
    /// let options = DdpOptions { virtual_ranks: Some(3), ..Default::default() };
    /// let model = DistributedDataParallel::with_options(module, &vs, &group, options)?;
    /// let batch = Tensor::arange(6, (Kind::Float, group.device())).unsqueeze(1).repeat([1, 4]);
    /// for share in model.shares(batch, 0) {
    ///     let share = share?;
    ///     assert_eq!(share.size(), [2, 4]);
    ///     model.backward(&model.forward_t(&share, true).mean(Kind::Float))?;
    /// }
    /// let gradient = vs.variables()["weight"].grad(); // the mean over all: 2.5 everywhere
    /// assert!(gradient.allclose(&gradient.full_like(2.5), 1e-5, 0.0, false));
    /// # Ok::<(), tch_parallel::Error>(())
    /// ```
    ///
    /// A batch that divides unevenly is an [`Error::Argument`](crate::Error::Argument) instead of its first share.
    pub fn shares<B: Tensors>(&self, batch: B, seed: i64) -> impl Iterator<Item = Result<B>> {
        let shares = self.virtual_ranks.as_deref().map(Shares);
        let parts = shares.as_ref().map_or(1, |Shares(ranks)| ranks.shard.parts());
        (0..parts).map(move |part| {
            let Some(Shares(ranks)) = &shares else { return Ok(batch.shallow_clone()) };
            ranks.begin(part, seed)?;
            self.group.or_report(share(&batch, part, parts))
        })
    }

    /// The mean over all virtual ranks of one tensor per share, such as its loss: the same bits on every rank, and on any
    /// number of them. A collective. Without virtual ranks, the mean of `shares`.
    ///
    /// # Errors
    /// [`Error::Argument`](crate::Error::Argument) for another number of tensors than this rank has virtual ranks, and
    /// [`Error::Collective`](crate::Error::Collective) if a rank has died or did not arrive within the timeout.
    pub fn mean_of_shares(&self, shares: &[Tensor]) -> Result<Tensor> {
        let mut numbers = Tensor::f_stack(shares, 0)?.detach();
        if let Some(ranks) = &self.virtual_ranks {
            let parts = ranks.shard.parts();
            let expected = format_args!("{parts}, one for each share of a batch");
            check(shares.len() == parts, "the number of shares", shares.len(), expected)?;
            numbers = Tensor::f_stack(&ranks.gather(&numbers, &self.group)?, 0)?;
        }
        Ok(numbers.f_mean_dim(0, false, None)?)
    }

    /// An abandoned step may have prepared a backward pass.
    pub(super) fn expect_no_gradients(&self) -> Result<()> {
        let prepared = self.reducer.borrow_mut().expect_no_gradients();
        prepared.map_err(|error| self.failed("backward", &error))
    }

    /// Makes the virtual ranks' rows, if they have none for the reducer's buckets.
    pub(super) fn lay_out(&self, rebuilt: bool) -> Result<()> {
        let is_due = |ranks: &&VirtualRanks| rebuilt || !ranks.are_laid_out();
        let Some(ranks) = self.virtual_ranks.as_deref().filter(is_due) else { return Ok(()) };
        let buckets =
            self.reducer.borrow().buckets().map_err(|error| self.failed("forward", &error))?;
        self.group.or_report(ranks.lay_out(&buckets, &self.group))
    }
}

/// A part of a batch.
pub(super) fn share<B: Tensors>(batch: &B, part: usize, parts: usize) -> Result<B> {
    let tensors = list(batch).into_iter().map(|tensor| {
        let rows = tensor.size().first().map_or(0, |rows| *rows as usize);
        let what = "the number of samples in a batch";
        let expected = format_args!("a multiple of {parts}, this rank's virtual ranks");
        check(rows % parts == 0, what, rows, expected)?;
        Ok(tensor.f_slice(0, part as i64, None, parts as i64)?.f_contiguous()?)
    });
    Ok(fill(batch, tensors.collect::<Result<Vec<_>>>()?))
}

/// A loop over shares. It may be left early.
pub(super) struct Shares<'a>(pub(super) &'a VirtualRanks);

impl Drop for Shares<'_> {
    fn drop(&mut self) {
        // A drop cannot return the error.
        let _ = self.0.end_shares();
    }
}
