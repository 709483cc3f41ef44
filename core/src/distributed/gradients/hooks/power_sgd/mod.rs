//! PowerSGD: exchanges low-rank matrices instead of gradients.
//!
//! Vogels, Karimireddy, Jaggi: "PowerSGD: Practical Low-Rank Gradient Compression for Distributed
//! Optimization", 2019, <https://arxiv.org/abs/1905.13727>; PyTorch's `powerSGD_hook`.
//!
//! - [`options`]: its options.
//!
//! Private: `state` (what is kept from step to step), `exchange` (one bucket in a step), `low_rank`
//! (its matrices and their factors), `orthogonalize`.

mod exchange;
mod low_rank;
pub mod options;
mod orthogonalize;
mod state;

pub use options::PowerSgdOptions;

use super::{AllReduce, CommHook, Finish, GradBucket};
use crate::Result;
use crate::distributed::{ProcessGroup, ReduceOp};
use exchange::Exchange;
use state::State;
use std::sync::{Arc, Mutex};
use tch_parallel_base::lock;

/// Approximates each gradient M of n rows and m columns by P Qᵀ, where P and Q have few columns,
/// and exchanges P and Q: `(n + m) * rank` numbers instead of `n * m`. `powerSGD_hook`
///
/// Gradients that this would not make smaller, mainly those of biases, are averaged uncompressed. The approximation's
/// error is added to the next step's gradient (error feedback), and each step starts from the previous Q (warm start).
///
/// If a whole matrix of gradients can be zero on all ranks, set `orthogonalization_epsilon`.
/// Otherwise the step divides by zero, as in PyTorch, and the weights become NaN.
///
/// An infinite or NaN gradient stays in the state of error feedback and warm start and makes all later ones NaN, as in
/// PyTorch. So do not combine it with a [`GradScaler`](crate::amp::GradScaler), which finds its scale by overflowing.
/// Checkpoints do not contain the state: a resumed training starts with an empty one.
///
/// Results equal PyTorch's to the last bit, except that on GPUs PyTorch's hook also seeds dropout's generator,
/// with the same number on all ranks. PyTorch's hook waits on gloo's two threads and, with two buckets or more,
/// can deadlock there (seen with 2.11); this one waits on the thread of the backward pass.
///
/// Clones share their state; keep one to ask for the [`compression_stats`].
///
/// ```
/// use tch::{Kind, Tensor, nn::{self, ModuleT}};
/// use tch_parallel::distributed::hooks::{PowerSgd, PowerSgdOptions};
/// use tch_parallel::distributed::{DdpOptions, DistributedDataParallel, ProcessGroup};
///
/// let group = ProcessGroup::from_env()?;
/// let vs = nn::VarStore::new(group.device());
/// let module = nn::linear(vs.root() / "fc", 784, 128, Default::default());
/// let hook = PowerSgd::new(PowerSgdOptions { start_power_sgd_iter: 2, ..Default::default() })?;
/// let options = DdpOptions { comm_hook: Some(Box::new(hook.clone())), ..Default::default() };
/// let model = DistributedDataParallel::with_options(module, &vs, &group, options)?;
///
/// let images = Tensor::rand([8, 784], (Kind::Float, group.device()));
/// for _step in 0..3 {
///     model.backward(&model.forward_t(&images, true).mean(Kind::Float))?;
/// }
/// // The weight's 784 * 128 numbers have become 784 + 128; the bias, 128, is exchanged as it is.
/// assert_eq!(hook.compression_stats().numel_after_compression, 784 + 128 + 128);
/// # Ok::<(), tch_parallel::Error>(())
/// ```
///
/// [`compression_stats`]: Self::compression_stats
#[derive(Debug, Clone)]
pub struct PowerSgd {
    state: Arc<Mutex<State>>,
}

/// How much PowerSGD has saved, in numbers exchanged, since compression started. `PowerSGDState.compression_stats()`
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct CompressionStats {
    /// The ratio of numbers exchanged without and with compression; 0 before compression starts.
    pub rate: f64,
    /// Numbers without compression.
    pub numel_before_compression: u64,
    /// Numbers with compression.
    pub numel_after_compression: u64,
}

impl PowerSgd {
    /// Makes the hook's state, `PowerSGDState(…)` in PyTorch.
    ///
    /// # Errors
    /// [`Error::Argument`](crate::Error::Argument) for invalid options.
    pub fn new(options: PowerSgdOptions) -> Result<PowerSgd> {
        options.check()?;
        Ok(PowerSgd { state: Arc::new(Mutex::new(State::new(options))) })
    }

    /// The simpler `batched_powerSGD_hook`: a bucket is one square matrix, padded with zeros. Faster but less accurate,
    /// since gradients of different parameters share rows. `min_compression_rate` does not apply. PyTorch's own has
    /// failed since 1.13, because `_orthogonalize` takes only batches of matrices, and would ignore the epsilon.
    ///
    /// ```
    /// use tch_parallel::distributed::hooks::{CommHook, PowerSgd, PowerSgdOptions};
    ///
    /// let hook = PowerSgd::batched(PowerSgdOptions { start_power_sgd_iter: 10, ..Default::default() })?;
    /// assert!(hook.name().starts_with("batched_powerSGD_hook"));
    /// # Ok::<(), tch_parallel::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Argument`](crate::Error::Argument) for invalid options.
    pub fn batched(options: PowerSgdOptions) -> Result<PowerSgd> {
        let hook = PowerSgd::new(options)?;
        lock(&hook.state).batched = true;
        Ok(hook)
    }

    /// What compression has saved so far, on this rank.
    pub fn compression_stats(&self) -> CompressionStats {
        let [before, after] = lock(&self.state).numel;
        CompressionStats {
            rate: if after > 0 { before as f64 / after as f64 } else { 0.0 },
            numel_before_compression: before,
            numel_after_compression: after,
        }
    }
}

impl CommHook for PowerSgd {
    fn name(&self) -> String {
        let state = lock(&self.state);
        format!("{}powerSGD_hook {:?}", if state.batched { "batched_" } else { "" }, state.options)
    }

    fn start(&mut self, group: &ProcessGroup, bucket: &mut GradBucket<'_>) -> Result<Finish> {
        let mut state = lock(&self.state);
        if state.iteration < state.options.start_power_sgd_iter {
            state.iteration += u64::from(bucket.is_last());
            return AllReduce.start(group, bucket);
        }
        let exchange = Exchange::prepare(&mut state, bucket)?;
        drop(state);
        let first = group.all_reduce_async(exchange.first()?, ReduceOp::Sum)?;
        let (hook, group) = (self.clone(), group.clone());
        Ok(Box::new(move || exchange.finish(&mut lock(&hook.state), &group, first.wait()?)))
    }
}
