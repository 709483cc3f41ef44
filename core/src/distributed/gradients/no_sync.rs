//! Steps without an exchange: gradients accumulate on each rank.

use super::ddp::DistributedDataParallel;
use std::cell::Cell;

/// Suspends the exchange of gradients while it exists; see [`DistributedDataParallel::no_sync`].
#[derive(Debug)]
#[must_use = "gradients are exchanged again as soon as the guard is dropped"]
pub struct NoSync<'a> {
    guards: &'a Cell<usize>,
}

impl Drop for NoSync<'_> {
    fn drop(&mut self) {
        self.guards.update(|guards| guards - 1);
    }
}

impl<M> DistributedDataParallel<M> {
    /// While the guard exists, gradients accumulate on each rank without being exchanged: gradient
    /// accumulation. The first forward and backward pass after it exchange the sum.
    ///
    /// The forward pass must also happen while the guard exists. `with model.no_sync():`
    ///
    /// ```
    /// # use tch::{Kind, Tensor, nn::{self, ModuleT}};
    /// # use tch_parallel::distributed::{DistributedDataParallel, ProcessGroup};
    /// # let group = ProcessGroup::from_env()?;
    /// # let vs = nn::VarStore::new(group.device());
    /// # let module = nn::linear(vs.root(), 4, 1, Default::default());
    /// # let model = DistributedDataParallel::new(module, &vs, &group)?;
    /// # let float = (Kind::Float, group.device());
    /// # let batches = [1.0, 2.0, 3.0].map(|value| Tensor::full([8, 4], value, float));
    /// for (index, batch) in batches.iter().enumerate() {
    ///     let is_last = index + 1 == batches.len();
    ///     let _no_sync = (!is_last).then(|| model.no_sync());
    ///     let loss = model.forward_t(batch, true).mean(Kind::Float) / batches.len() as f64;
    ///     model.backward(&loss)?;
    /// }
    /// let gradient = vs.variables()["weight"].grad(); // the mean of the batches: 2 everywhere
    /// assert!(gradient.allclose(&gradient.full_like(2.0), 1e-5, 0.0, false));
    /// # Ok::<(), tch_parallel::Error>(())
    /// ```
    pub fn no_sync(&self) -> NoSync<'_> {
        self.no_sync_guards.update(|guards| guards + 1);
        NoSync { guards: &self.no_sync_guards }
    }
}
