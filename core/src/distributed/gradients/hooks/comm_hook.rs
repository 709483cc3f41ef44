//! The trait of communication hooks.

use super::GradBucket;
use crate::{Result, distributed::ProcessGroup};
use std::fmt;
use tch::Tensor;

/// The second half of a hook's work on a bucket: waits for what the first half started, and returns
/// the tensor that replaces the bucket's buffer, with the same shape and kind.
///
/// PyTorch's hooks return a `Future` and chain further work to it with `then`.
pub type Finish = Box<dyn FnOnce() -> Result<Tensor> + Send>;

/// How gradients are exchanged; [`from_fn`] makes a hook from a closure.
///
/// Every backward pass calls [`start`](Self::start) once per bucket, in the order of the buckets, as soon as a bucket's
/// gradients are complete and while others are still being computed. After the last gradient, it calls the returned
/// closures, one bucket after the other, in the same order, on the thread of the backward pass. So all ranks make the
/// same collectives in the same order, even if the second half starts further ones.
pub trait CommHook: Send {
    /// The name in messages and logging data, with all options that must be the same on all ranks: they compare it.
    fn name(&self) -> String;

    /// Starts the exchange of a bucket among the ranks of `group`.
    ///
    /// The gradients are this rank's own, undivided. A hook that sums them must also divide by the size of the group.
    ///
    /// # Errors
    /// Anything that stops the hook; [`DistributedDataParallel::backward`] returns it.
    ///
    /// [`DistributedDataParallel::backward`]: crate::distributed::DistributedDataParallel::backward
    fn start(&mut self, group: &ProcessGroup, bucket: &mut GradBucket<'_>) -> Result<Finish>;
}

impl fmt::Debug for dyn CommHook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name())
    }
}

/// Makes a hook of a closure; ranks compare `name`.
///
/// ```
/// # use tch::{Kind, Tensor, nn::{self, ModuleT}};
/// # use tch_parallel::distributed::{DdpOptions, DistributedDataParallel, ProcessGroup};
/// use tch_parallel::distributed::{ReduceOp, hooks};
///
/// # let group = ProcessGroup::from_env()?;
/// # let vs = nn::VarStore::new(group.device());
/// # let module = nn::linear(vs.root(), 4, 1, Default::default());
/// # let images = Tensor::ones([8, 4], (Kind::Float, group.device()));
/// let sum = hooks::from_fn("sum", |group, bucket| {
///     let sum = group.all_reduce_async(bucket.buffer()?, ReduceOp::Sum)?;
///     Ok(Box::new(move || sum.wait()))
/// });
/// let options = DdpOptions { comm_hook: Some(Box::new(sum)), ..Default::default() };
/// let model = DistributedDataParallel::with_options(module, &vs, &group, options)?;
/// model.backward(&model.forward_t(&images, true).mean(Kind::Float))?;
/// assert_eq!(model.logging_data()?.comm_hook, "sum");
/// # Ok::<(), tch_parallel::Error>(())
/// ```
pub fn from_fn<F>(name: impl Into<String>, start: F) -> FromFn<F>
where
    F: FnMut(&ProcessGroup, &mut GradBucket<'_>) -> Result<Finish> + Send,
{
    FromFn { name: name.into(), start }
}

/// The hook that [`from_fn`] makes.
pub struct FromFn<F> {
    name: String,
    start: F,
}

impl<F> CommHook for FromFn<F>
where
    F: FnMut(&ProcessGroup, &mut GradBucket<'_>) -> Result<Finish> + Send,
{
    fn name(&self) -> String {
        self.name.clone()
    }

    fn start(&mut self, group: &ProcessGroup, bucket: &mut GradBucket<'_>) -> Result<Finish> {
        (self.start)(group, bucket)
    }
}

debug_parts!(FromFn<F>, self, name: self.name);
