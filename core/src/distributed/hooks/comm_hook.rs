//! What a communication hook is.

use super::GradBucket;
use crate::Result;
use crate::distributed::ProcessGroup;
use std::fmt;
use tch::Tensor;

/// The second half of a hook's work on one bucket: waits for what the first half has started and
/// gives what takes the bucket's place, a tensor of the shape and kind of its buffer.
///
/// PyTorch's hooks return a `Future` and chain what is to be done to it with `then`.
pub type Finish = Box<dyn FnOnce() -> Result<Tensor> + Send>;

/// How gradients are exchanged; [`from_fn`] makes one of a closure.
///
/// In every backward pass [`start`](Self::start) is called once for each bucket, in the order of the
/// buckets, as soon as the bucket's gradients are complete: while others are still being computed.
/// After the last gradient what it has returned is called, for one bucket after the other, in the
/// same order, on the thread of the backward pass. All ranks so come to the same collectives in the
/// same order, also where the second half starts further ones.
pub trait CommHook: Send {
    /// By what it is known in messages and in the logging data, together with everything that must
    /// be the same on all ranks: ranks are compared by it.
    fn name(&self) -> String;

    /// Starts the exchange of a bucket among the ranks of `group`.
    ///
    /// Gradients come as this rank has computed them. Whoever sums them must divide by the size of
    /// the group as well.
    ///
    /// # Errors
    /// Whatever keeps the hook from its work: [`DistributedDataParallel::backward`] reports it.
    ///
    /// [`DistributedDataParallel::backward`]: crate::distributed::DistributedDataParallel::backward
    fn start(&mut self, group: &ProcessGroup, bucket: &mut GradBucket<'_>) -> Result<Finish>;
}

/// A hook of a closure, under the name by which ranks are compared.
///
/// ```
/// # use tch::{Kind, Tensor, nn::{self, ModuleT}};
/// # use tch_parallel::distributed::{DistributedDataParallel, ProcessGroup};
/// use tch_parallel::distributed::{ReduceOp, hooks};
///
/// # let group = ProcessGroup::from_env()?;
/// # let vs = nn::VarStore::new(group.device());
/// # let module = nn::linear(vs.root(), 4, 1, Default::default());
/// # let model = DistributedDataParallel::new(module, &vs, &group)?;
/// # let images = Tensor::ones([8, 4], (Kind::Float, group.device()));
/// model.register_comm_hook(hooks::from_fn("sum", |group, bucket| {
///     let sum = group.all_reduce_async(bucket.buffer()?, ReduceOp::Sum)?;
///     Ok(Box::new(move || sum.wait()))
/// }))?;
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

/// What [`from_fn`] makes.
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

impl<F> fmt::Debug for FromFn<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FromFn").field("name", &self.name).finish_non_exhaustive()
    }
}
