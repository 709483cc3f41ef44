//! Running statistics for weights that no batch has passed through: `torch.optim.swa_utils.update_bn`.

use crate::Result;
use c10d_sys::arithmetic::add_number_;
use std::cell::Cell;
use tch::{Tensor, nn::VarStore, no_grad};
use tch_parallel_base::parameters::named_buffers;

thread_local! {
    /// Whether running statistics are the mean over this thread's batches, whatever the layers' momentum.
    static CUMULATIVE: Cell<bool> = const { Cell::new(false) };
}

/// Makes the running statistics of a store's batch norms the mean over these batches, each with the same weight:
/// averaged weights have none of their own. `torch.optim.swa_utils.update_bn(loader, model)`
///
/// `forward` passes a batch through the model in training mode, on this thread; of a `DataLoader`'s epoch, `batch?`.
/// There is no graph. With several ranks each has the mean over its own batches, unless the layers are
/// `sync_batch_norm`'s.
///
/// ```
/// use tch::{Device, Tensor, nn::{ModuleT, VarStore}};
/// use tch_parallel::nn::{BatchNormOptions, batch_norm1d, update_bn};
///
/// let vs = VarStore::new(Device::Cpu);
/// let model = batch_norm1d(vs.root() / "norm", 1, BatchNormOptions::default());
/// let batches = [[1f32, 3.0], [5.0, 7.0]].map(|rows| Tensor::from_slice(&rows).view([2, 1]));
/// update_bn(&vs, &batches, |batch| Ok(model.forward_t(batch, true)))?;
/// assert_eq!(vs.variables()["norm.running_mean"].double_value(&[0]), 4.0); // of 2 and 6
/// # Ok::<(), tch_parallel::Error>(())
/// ```
///
/// # Errors
/// Those of `forward`; [`Error::Tensor`](crate::Error::Tensor) if an operation fails.
pub fn update_bn<B>(
    vs: &VarStore,
    loader: impl IntoIterator<Item = B>,
    mut forward: impl FnMut(B) -> Result<Tensor>,
) -> Result<()> {
    no_grad(|| {
        for (name, mut buffer) in named_buffers(vs) {
            let is_var = match name.rsplit('.').next() {
                Some("running_mean" | "num_batches_tracked") => false,
                Some("running_var") => true,
                _ => continue,
            };
            let _ = buffer.f_zero_()?;
            if is_var {
                add_number_(&mut buffer, 1.0)?;
            }
        }
        CUMULATIVE.set(true);
        let _until = UntilDropped;
        loader.into_iter().try_for_each(|batch| forward(batch).map(drop))
    })
}

/// What a batch weighs in the running statistics, given its number from 1 on.
pub(super) fn weight(momentum: f64, number: &Tensor) -> f64 {
    if CUMULATIVE.get() { 1.0 / number.double_value(&[]) } else { momentum }
}

struct UntilDropped;

impl Drop for UntilDropped {
    fn drop(&mut self) {
        CUMULATIVE.set(false);
    }
}
