//! NVIDIA Apex's DistributedDataParallel, which mixed-precision training used before PyTorch had
//! its own, with the options that PyTorch's lacks.
//!
//! `apex.parallel.DistributedDataParallel`, which Apex removed in 2025.

use super::hooks::{CommHook, from_fn};
use super::{DdpLoggingData, DdpOptions, DistributedDataParallel, ddp_options::MIB};
use crate::{Result, Tensors, check, distributed::group::ProcessGroup};
use c10d_sys::{ReduceOp, arithmetic::mul_number_};
use tch::nn::{ModuleT, VarStore};
use tch::{Kind, Tensor};
use tch_parallel_base::options;

options! {
    /// Apex's keyword arguments, with its defaults.
    #[derive(Debug, Clone, Copy, PartialEq)]
    pub struct ApexOptions {
        /// The minimum size of a bucket, counted in elements of the first parameter's kind.
        pub message_size: usize = 10_000_000,
        /// Whether all gradients are exchanged at the end of the backward pass, grouped by kind, instead of while
        /// others are still being computed. Parameters without a gradient are then allowed, and skipped.
        ///
        /// If parameters have several kinds, each kind is exchanged once its last gradient is
        /// ready; Apex waits for all of them. The results are the same.
        pub delay_allreduce: bool = false,
        /// Whether gradients are exchanged as `float32` whatever their kind: sums of `float16` overflow above 65,504.
        pub allreduce_always_fp32: bool = false,
        /// Whether gradients are averaged over the ranks. Otherwise they are summed.
        pub gradient_average: bool = true,
        /// Gradients are divided by this before they are summed. With `gradient_average`, they are then multiplied by
        /// it and divided by the number of ranks; without, the sum stays divided.
        pub gradient_predivide_factor: f64 = 1.0,
    }
}

/// Averages gradients over the ranks like `apex.parallel.DistributedDataParallel`, on PyTorch's engine.
///
/// Unlike [`DistributedDataParallel`], it broadcasts rank 0's parameters but never buffers, so each rank keeps its own
/// running statistics. And it can exchange all gradients after the backward pass.
///
/// Evaluate through [`module`](Self::module).
///
/// ```
/// use tch::{Kind, Tensor, nn::{self, ModuleT}};
/// use tch_parallel::distributed::{ApexDistributedDataParallel, ApexOptions, ProcessGroup};
///
/// let group = ProcessGroup::from_env()?;
/// let vs = nn::VarStore::new(group.device());
/// let module = nn::linear(vs.root() / "fc", 4, 3, Default::default());
/// let options = ApexOptions { delay_allreduce: true, ..Default::default() };
/// let model = ApexDistributedDataParallel::new(module, &vs, &group, options)?;
///
/// let images = Tensor::ones([8, 4], (Kind::Float, group.device()));
/// let labels = Tensor::zeros([8], (Kind::Int64, group.device()));
/// let loss = model.forward_t(&images, true).cross_entropy_for_logits(&labels);
/// model.backward(&loss)?;
/// assert_eq!(vs.variables()["fc.weight"].grad().size(), [3, 4]);
/// # Ok::<(), tch_parallel::Error>(())
/// ```
#[derive(Debug)]
pub struct ApexDistributedDataParallel<M> {
    model: DistributedDataParallel<M>,
}

impl<M> ApexDistributedDataParallel<M> {
    /// Wraps `module`, whose parameters are the trainable variables of `vs`. A collective.
    ///
    /// # Errors
    /// Those of [`DistributedDataParallel::new`], and [`Error::Argument`](crate::Error::Argument) for invalid options.
    pub fn new(
        module: M,
        vs: &VarStore,
        group: &ProcessGroup,
        options: ApexOptions,
    ) -> Result<Self> {
        check(options.message_size > 0, "message_size", "0", "at least 1")?;
        let factor = options.gradient_predivide_factor;
        let is_positive = factor.is_finite() && factor > 0.0;
        check(is_positive, "gradient_predivide_factor", factor, "more than 0")?;
        let bytes = vs.trainable_variables().first().map_or(0, |it| it.kind().elt_size_in_bytes());
        let bucket_mb = options.message_size as f64 * bytes.max(1) as f64 / MIB;
        let ddp = DdpOptions {
            bucket_cap_mb: Some(if options.delay_allreduce { f64::INFINITY } else { bucket_mb }),
            find_unused_parameters: options.delay_allreduce,
            broadcast_buffers: false,
            comm_hook: Some(Box::new(all_reduce(options))),
            ..Default::default()
        };
        let model = DistributedDataParallel::with_options(module, vs, group, ddp)?;
        Ok(ApexDistributedDataParallel { model })
    }

    /// [`DistributedDataParallel::forward`]
    pub fn forward<O: Tensors>(&self, f: impl FnOnce(&M) -> O) -> Result<O> {
        self.model.forward(f)
    }

    /// [`DistributedDataParallel::backward`]
    pub fn backward(&self, loss: &Tensor) -> Result<()> {
        self.model.backward(loss)
    }

    /// The module itself, without any exchange. `model.module`
    pub fn module(&self) -> &M {
        self.model.module()
    }

    /// [`DistributedDataParallel::parameters`]
    pub fn parameters(&self) -> Vec<Tensor> {
        self.model.parameters()
    }

    /// [`DistributedDataParallel::logging_data`]
    pub fn logging_data(&self) -> Result<DdpLoggingData> {
        self.model.logging_data()
    }
}

impl<M: ModuleT> ApexDistributedDataParallel<M> {
    /// [`ModuleT::forward_t`] that returns errors.
    pub fn f_forward_t(&self, xs: &Tensor, train: bool) -> Result<Tensor> {
        self.model.f_forward_t(xs, train)
    }
}

impl<M: ModuleT> ModuleT for ApexDistributedDataParallel<M> {
    /// # Panics
    /// If [`f_forward_t`](Self::f_forward_t) returns an error.
    fn forward_t(&self, xs: &Tensor, train: bool) -> Tensor {
        self.model.forward_t(xs, train)
    }
}

/// `allreduce_bucket`
fn all_reduce(options: ApexOptions) -> impl CommHook {
    from_fn(format!("apex {options:?}"), move |group, bucket| {
        let ApexOptions { gradient_average, gradient_predivide_factor: factor, .. } = options;
        let mut buffer = bucket.buffer()?;
        let mut sent = match options.allreduce_always_fp32 {
            true => buffer.f_to_kind(Kind::Float)?,
            false => buffer.shallow_clone(),
        };
        if factor != 1.0 {
            mul_number_(&mut sent, 1.0 / factor)?;
        }
        let sum = group.all_reduce_async(sent, ReduceOp::Sum)?;
        let after = gradient_average.then_some(factor / group.world_size() as f64);
        Ok(Box::new(move || {
            let mut sum = sum.wait()?;
            if let Some(after) = after {
                mul_number_(&mut sum, after)?;
            }
            if sum.kind() != buffer.kind() {
                buffer.f_copy_(&sum)?;
            }
            Ok(buffer)
        }))
    })
}
