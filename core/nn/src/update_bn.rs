//! Running statistics for weights that no batch has passed through: `torch.optim.swa_utils.update_bn`.

use crate::Result;
use c10d_sys::arithmetic::add_number_;
use std::cell::Cell;
use tch::{Tensor, nn::VarStore, no_grad_guard};
use tch_parallel_base::{check, parameters::named_buffers};

thread_local! {
    /// How many batches this thread's layers have counted while [`update_bn`] runs, which ignores their momentum.
    static CUMULATIVE: Cell<Option<i64>> = const { Cell::new(None) };
}

/// Sets the running statistics of a store's batch norms to their means over these batches, equally weighted. Averaged
/// weights need this, because they have no statistics of their own. `torch.optim.swa_utils.update_bn(loader, model)`
///
/// `forward` runs the model on a batch in training mode, on this thread; a `DataLoader` gives it a `Result`: start with
/// `batch?`. No graph is built. Each rank has the means over its own batches, except with `sync_batch_norm`.
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
/// Those of `forward`; [`Error::Argument`](tch_parallel_base::Error::Argument) for tch's batch norms, or if layers run
/// on other threads, as in `DataParallel`; [`Error::Tensor`](tch_parallel_base::Error::Tensor) if an operation fails.
pub fn update_bn<B>(
    vs: &VarStore,
    loader: impl IntoIterator<Item = B>,
    mut forward: impl FnMut(B) -> Result<Tensor>,
) -> Result<()> {
    let buffers = named_buffers(vs);
    let of_name = |end: &str| {
        let own = buffers.iter().filter(|(name, _)| name.rsplit('.').next() == Some(end));
        own.map(|(_, buffer)| buffer.shallow_clone()).collect::<Vec<_>>()
    };
    let (means, counters) = (of_name("running_mean"), of_name("num_batches_tracked"));
    if means.is_empty() {
        return Ok(());
    }
    let uncounted = means.len() - counters.len();
    let found = format_args!("a store with {uncounted} batch norms that count no batches");
    let expected = "of a model with this library's batch norms, not tch's";
    check(uncounted == 0, "vs", found, expected)?;
    // Unlike `no_grad`, also until a panic.
    let _no_gradients = no_grad_guard();
    for mut variance in of_name("running_var") {
        let _ = variance.f_zero_()?;
        add_number_(&mut variance, 1.0)?;
    }
    let counts = counters.iter().map(Tensor::shallow_clone);
    means.into_iter().chain(counts).try_for_each(|mut it| it.f_zero_().map(drop))?;
    CUMULATIVE.set(Some(0));
    let _until = UntilDropped;
    loader.into_iter().try_for_each(|batch| forward(batch).map(drop))?;
    let counted: i64 = counters.iter().map(|counter| counter.int64_value(&[])).sum();
    let here = CUMULATIVE.get();
    let found = format_args!(
        "run on another thread by {counted} passes of layers, and on this one by {here:?}"
    );
    check(here == Some(counted), "forward", found, "run on the thread of update_bn alone")
}

/// The weight of a batch in the running statistics, given its number, counted from 1.
pub(super) fn weight(momentum: f64, number: &Tensor) -> f64 {
    let Some(counted) = CUMULATIVE.get() else { return momentum };
    CUMULATIVE.set(Some(counted + 1));
    1.0 / number.double_value(&[])
}

struct UntilDropped;

impl Drop for UntilDropped {
    fn drop(&mut self) {
        CUMULATIVE.set(None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BatchNormOptions, batch_norm1d};
    use std::{sync::Mutex, thread};
    use tch::{Device, kind::FLOAT_CPU, nn, nn::ModuleT};
    use tch_parallel_base::{Error, lock};

    #[test]
    fn without_batch_norms_no_batch_is_read() {
        let unread = std::iter::from_fn(|| -> Option<Tensor> { panic!("read") });
        update_bn(&VarStore::new(Device::Cpu), unread, Ok).unwrap();
    }

    #[test]
    fn layers_that_it_cannot_tell_are_refused() {
        let vs = VarStore::new(Device::Cpu);
        let _own = batch_norm1d(vs.root() / "own", 2, BatchNormOptions::default());
        let tchs = nn::batch_norm1d(vs.root() / "tch", 2, Default::default());
        let batches = || [Tensor::ones([3, 2], FLOAT_CPU)];
        let error =
            update_bn(&vs, batches(), |batch| Ok(tchs.forward_t(&batch, true))).unwrap_err();
        assert!(error.to_string().contains("1 batch norms that count no batches"), "{error}");

        let vs = VarStore::new(Device::Cpu);
        let layer = Mutex::new(batch_norm1d(vs.root(), 2, BatchNormOptions::default()));
        let elsewhere = |batch: Tensor| {
            let pass = || lock(&layer).forward_t(&{ batch }, true);
            thread::scope(|scope| scope.spawn(pass).join().map_err(|_| Error::other("a panic")))
        };
        let error = update_bn(&vs, batches(), elsewhere).unwrap_err().to_string();
        assert!(error.starts_with("forward is run on another thread by 1 passes"), "{error}");
    }
}
