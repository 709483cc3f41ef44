//! Parameters and gradients in fewer bits during a pass: DistributedDataParallel's `mixed_precision`.

use super::hooks::{CommHook, from_fn};
use crate::{Error, Result, distributed::ReduceOp};
use c10d_sys::{Reducer, arithmetic::div_number_, set_data};
use std::sync::{Arc, Mutex};
use tch::{Device, Kind, Tensor, no_grad};
use tch_parallel_base::{lock, options};

options! {
    /// `torch.nn.parallel.distributed._MixedPrecision`, with PyTorch's defaults. `None` changes nothing.
    ///
    /// Before each forward pass, the parameters' data are replaced by copies of `param_dtype`, in which
    /// the layers compute and gradients accumulate. The gradients are summed in `reduce_dtype`. After
    /// [`backward`](super::DistributedDataParallel::backward), parameters and gradients have their own
    /// kind again, so the optimizer works in full precision. Between the two, weights cannot be loaded
    /// or saved. In PyTorch the gradients of the first step are undefined; here they are correct.
    ///
    /// ```
    /// use tch::{Kind, Tensor, nn};
    /// use tch_parallel::distributed::{DdpOptions, DistributedDataParallel, MixedPrecision, ProcessGroup};
    ///
    /// let group = ProcessGroup::from_env()?;
    /// let vs = nn::VarStore::new(group.device());
    /// let module = nn::linear(vs.root() / "fc", 4, 3, Default::default());
    /// let mixed_precision = MixedPrecision {
    ///     param_dtype: Some(Kind::BFloat16),
    ///     reduce_dtype: Some(Kind::Float),
    ///     ..Default::default()
    /// };
    /// let options = DdpOptions { mixed_precision: Some(mixed_precision), ..Default::default() };
    /// let model = DistributedDataParallel::with_options(module, &vs, &group, options)?;
    /// let output = model.f_forward_t(&Tensor::ones([2, 4], (Kind::Float, group.device())), true)?;
    /// assert_eq!(output.kind(), Kind::BFloat16);
    /// model.backward(&output.mean(Kind::Float))?;
    /// assert_eq!(vs.trainable_variables()[0].grad().kind(), Kind::Float);
    /// # Ok::<(), tch_parallel::Error>(())
    /// ```
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct MixedPrecision {
        /// The kind of the parameters during a pass, and of their gradients until they are reduced. Inputs of
        /// [`f_forward_t`](super::DistributedDataParallel::f_forward_t) are cast to it; those of a closure are not.
        pub param_dtype: Option<Kind> = None,
        /// The kind in which gradients are summed over the ranks.
        pub reduce_dtype: Option<Kind> = None,
        /// The kind that floating-point buffers get when the model is wrapped.
        pub buffer_dtype: Option<Kind> = None,
    }
}

/// Parameters that are cast for a pass. After an abandoned one, they are restored by the next, or when this is dropped.
pub(super) struct CastParameters {
    pub options: MixedPrecision,
    /// Each with its own data while it is cast.
    parameters: Mutex<Vec<(Tensor, Option<Tensor>)>>,
}

impl CastParameters {
    /// For a model's parameters, the reducer of their gradients, and buffers, which stay cast.
    pub(super) fn new(
        parameters: Vec<Tensor>,
        buffers: impl Iterator<Item = (String, Tensor)>,
        options: MixedPrecision,
        reducer: &mut Reducer,
    ) -> Result<Arc<Self>> {
        if let Some(kind) = options.buffer_dtype {
            for (_, mut buffer) in buffers.filter(|(_, buffer)| buffer.is_floating_point()) {
                buffer.set_data(&no_grad(|| buffer.f_to_kind(kind))?);
            }
        }
        if let Some(kind) = options.param_dtype {
            let like = Tensor::f_zeros([0], (kind, Device::Cpu))?;
            reducer.compute_in(&like).map_err(Error::engine("mixed_precision"))?;
        }
        let parameters = parameters.into_iter().map(|parameter| (parameter, None)).collect();
        Ok(Arc::new(CastParameters { options, parameters: Mutex::new(parameters) }))
    }

    /// The hook that exchanges the gradients: it sums them in `reduce_dtype`, and restores the parameters
    /// before the optimizer uses them. `_reducer_allreduce_and_upcast_hook`
    pub(super) fn hook(self: &Arc<Self>) -> Box<dyn CommHook> {
        let parameters = Arc::clone(self);
        Box::new(from_fn("_reducer_allreduce_and_upcast_hook", move |group, bucket| {
            let mut gradients = bucket.buffer()?;
            if let Some(kind) = parameters.options.reduce_dtype {
                gradients = gradients.f_to_kind(kind)?;
            }
            let sum = group.all_reduce_async(gradients, ReduceOp::Sum)?;
            let (ranks, is_first) = (group.world_size(), bucket.index() == 0);
            let parameters = Arc::clone(&parameters);
            Ok(Box::new(move || {
                let mut mean = sum.wait()?;
                div_number_(&mut mean, ranks as f64)?;
                // All gradients have been made; the reducer goes on to copy this bucket's to the parameters.
                if is_first {
                    parameters.restore()?;
                }
                Ok(mean)
            }))
        }))
    }

    /// Before a forward pass. `_root_copy_hook`, except that gradients keep their bits if no backward pass follows.
    fn cast(&self, grad: bool) -> Result<()> {
        self.restore()?;
        let Some(kind) = self.options.param_dtype else { return Ok(()) };
        for (parameter, own) in lock(&self.parameters).iter_mut() {
            if parameter.kind() != kind {
                let full = parameter.f_detach()?;
                replace(parameter, &no_grad(|| full.f_to_kind(kind))?, true)?;
                *own = Some(full);
            }
            if grad {
                cast_gradient(parameter, kind)?;
            }
        }
        Ok(())
    }

    /// Runs a forward pass. If one without gradients comes between another and its backward pass, it finds
    /// the parameters cast, and leaves them so.
    pub(super) fn in_forward<O>(&self, grad: bool, pass: impl FnOnce() -> O) -> Result<O> {
        let is_within = !grad && lock(&self.parameters).iter().any(|(_, own)| own.is_some());
        if !is_within {
            self.cast(grad)?;
        }
        let outputs = pass();
        if !grad && !is_within {
            self.restore()?;
        }
        Ok(outputs)
    }

    /// After a backward pass, and after a forward pass without one.
    pub(super) fn restore(&self) -> Result<()> {
        for (parameter, own) in lock(&self.parameters).iter_mut() {
            if let Some(full) = own.take() {
                replace(parameter, &full, false)?;
            }
            cast_gradient(parameter, parameter.kind())?;
        }
        Ok(())
    }
}

impl Drop for CastParameters {
    fn drop(&mut self) {
        // If that fails, there is no way to report it.
        let _ = self.restore();
    }
}

fn replace(parameter: &mut Tensor, data: &Tensor, exchanges: bool) -> Result<()> {
    set_data(parameter, data, exchanges).map_err(Error::engine("mixed_precision"))
}

fn cast_gradient(parameter: &Tensor, kind: Kind) -> Result<()> {
    let mut gradient = parameter.grad();
    if gradient.defined() && gradient.kind() != kind {
        gradient.set_data(&no_grad(|| gradient.f_to_kind(kind))?);
    }
    Ok(())
}
