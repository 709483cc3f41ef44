//! The backward pass: one per replica, each on its own thread, then one sum of all gradients.

use super::coalesced::reduce_add_coalesced;
use super::replicas::{SharedParts, SplitInput};
use super::replicate::{ModelVariables, Variables};
use super::scatter::{length, send};
use super::trace::{Step, gpu};
use crate::{Error, LogicalDevice, Result, check};
use c10d_sys::tensor::{clear_grad, set_grad};
use c10d_sys::{autograd, autograd::GraphEnd, is_in_reducer, stream::LastGradient};
use tch::{Device, Tensor, no_grad};
use tch_parallel_optim::steps_in_backward;

/// What a pass over several devices is called in errors.
pub(super) const SEVERAL: &str = "DataParallel on several devices";

/// Where a replica's backward pass starts, and the gradient there, on the replica's device.
pub(super) type Roots<'a> = Vec<(&'a GraphEnd, Tensor)>;

/// The end of a tensor's graph; `None` for one that depends on no parameter.
pub(super) fn end_of(tensor: &Tensor, operation: &'static str) -> Result<Option<GraphEnd>> {
    let end = tensor.requires_grad().then(|| GraphEnd::of(tensor)).transpose();
    end.map_err(Error::engine(operation))
}

/// The parts of one gathered tensor: for each, the end of its graph, if it has one, and its rows.
pub(super) struct Parts {
    parts: Vec<(Option<GraphEnd>, Option<i64>)>,
    dim: i64,
}

impl Parts {
    /// Those of a tensor that was gathered from `tensors` along `dim`.
    pub(super) fn of<'a>(tensors: impl Iterator<Item = &'a Tensor>, dim: i64) -> Result<Self> {
        let part = |tensor: &Tensor| Ok((end_of(tensor, "gather")?, length(tensor, dim)));
        Ok(Parts { parts: tensors.map(part).collect::<Result<_>>()?, dim })
    }

    pub(super) fn require_grad(&self) -> bool {
        self.parts.iter().any(|(end, _)| end.is_some())
    }

    /// Gives each replica its slice of the whole tensor's gradient.
    fn hand_out<'a>(&'a self, gradient: &Tensor, roots: &mut [Roots<'a>]) -> Result<()> {
        let mut offset = 0;
        // ANCHOR: slices
        for ((end, rows), roots) in self.parts.iter().zip(roots) {
            let slice = match rows {
                Some(rows) => gradient.f_narrow(self.dim, offset, *rows),
                // A single number, gathered into a vector.
                None => gradient.f_select(0, offset),
            };
            offset += rows.unwrap_or(1);
            if let Some(end) = end {
                roots.push((end, slice?));
            }
        }
        // ANCHOR_END: slices
        Ok(())
    }
}

impl SharedParts {
    /// Scatters gathered gradients and runs the replicas' backward passes. Returns the split inputs' gradients.
    pub(super) fn backward_gathered(
        &self,
        gathered: &[Parts],
        gradients: Vec<Option<Tensor>>,
        inputs: &[SplitInput],
        retain_graph: bool,
    ) -> Result<Vec<Option<Tensor>>> {
        self.end_loss();
        let trace = self.trace();
        let count = gathered.first().map_or(0, |parts| parts.parts.len());
        let mut roots: Vec<_> = (0..count).map(|_| Roots::new()).collect();
        for (parts, gradient) in gathered.iter().zip(gradients) {
            if let Some(gradient) = gradient {
                parts.hand_out(&gradient, &mut roots)?;
            }
        }
        for (device, roots) in self.devices.iter().zip(&mut roots) {
            let span = trace.begin(Step::ScatterGradients, device);
            let (ends, gradients): (Vec<_>, Vec<_>) = roots.drain(..).unzip();
            roots.extend(ends.into_iter().zip(send(&gradients, device, span)?));
        }
        self.backward(roots, inputs, retain_graph)
    }

    /// Runs the backward passes of the first replicas, one for each of `roots`, and adds their
    /// gradients to the original's. Returns the gradients of the inputs that were split.
    pub(super) fn backward(
        &self,
        roots: Vec<Roots<'_>>,
        inputs: &[SplitInput],
        retain_graph: bool,
    ) -> Result<Vec<Option<Tensor>>> {
        let mut pass = self.begin_pass()?;
        let variables = &mut *pass.value;
        let count = roots.len();
        let has_hooks = |it: &Tensor| is_in_reducer(it) || steps_in_backward(it);
        let is_watched = variables.first(1).0.parameters.iter().any(has_hooks);
        let found = "in DistributedDataParallel or with OptimizerInBackward";
        let expected = "used without, as they would take the first device's gradients for the sum";
        check(!is_watched || self.devices.len() == 1, SEVERAL, found, expected)?;
        // Set aside, as PyTorch adds the sum over the devices to them, and not one device's gradient after another's.
        let is_kept = |it: &Tensor| it.defined() && !it.is_sparse() && self.devices.len() > 1;
        let earlier = variables.first(1).0.parameters.iter_mut().filter_map(|parameter| {
            let gradient = Some(parameter.grad()).filter(is_kept)?;
            Some(clear_grad(parameter).map(|()| (parameter.shallow_clone(), gradient)))
        });
        let earlier = earlier.collect::<Result<Vec<_>, _>>().map_err(Error::engine("backward"))?;
        let passed = match Device::from(self.devices.first()) {
            Device::Cpu => self.backward_on_threads(roots, retain_graph),
            _ => self.backward_on_gpus(roots, variables, retain_graph),
        };
        let mut reduced = passed.and_then(|()| no_grad(|| self.reduce_gradients(variables, count)));
        // Replicas keep no gradients, not even after an error.
        let (_, replicas) = variables.first(count);
        let mut parameters = replicas.iter_mut().flat_map(|replica| &mut replica.parameters);
        parameters.try_for_each(clear_grad).map_err(Error::engine("backward"))?;
        for (mut parameter, mut sum) in earlier {
            let gradient = parameter.grad();
            if reduced.is_ok() && gradient.defined() {
                reduced = no_grad(|| sum.f_add_(&gradient)).map(drop).map_err(Error::from);
            }
            set_grad(&mut parameter, &sum).map_err(Error::engine("backward"))?;
        }
        reduced?;
        no_grad(|| inputs.iter().map(SplitInput::take_gradient).collect())
    }

    fn backward_on_threads(&self, roots: Vec<Roots<'_>>, retain_graph: bool) -> Result<()> {
        let trace = self.trace();
        self.workers.parallel_apply("backward", roots, |device, roots| {
            let span = trace.begin(Step::Backward, device);
            let (ends, gradients): (Vec<_>, Vec<_>) = roots.into_iter().unzip();
            autograd::backward(&ends, gradients, retain_graph).map_err(|error| {
                let message = error.message().to_owned();
                Error::Replica { device, operation: "backward", message }
            })?;
            span.end();
            Ok(())
        })?;
        Ok(())
    }

    /// One pass over all graphs. Autograd has one thread per GPU, and one of those is waiting for us: passes on threads
    /// of our own would deadlock. A GPU's part of the pass ends where the last of its parameters has got its gradient.
    fn backward_on_gpus(
        &self,
        roots: Vec<Roots<'_>>,
        variables: &mut ModelVariables,
        retain_graph: bool,
    ) -> Result<()> {
        let trace = self.trace();
        let (original, replicas) = variables.first(roots.len());
        let all = std::iter::once(&*original).chain(&*replicas);
        let begin = |(device, variables): (LogicalDevice, &Variables)| {
            let span = trace.begin(Step::Backward, device);
            let gpu = gpu(device).filter(|_| span.is_open());
            let last = gpu.and_then(|index| LastGradient::watch(&variables.parameters, index).ok());
            (span, last)
        };
        let spans: Vec<_> = self.devices.iter().zip(all).map(begin).collect();
        let (ends, gradients): (Vec<_>, Vec<_>) = roots.into_iter().flatten().unzip();
        autograd::backward(&ends, gradients, retain_graph).map_err(Error::engine("backward"))?;
        spans.into_iter().for_each(|(span, last)| span.end_at(last.map(LastGradient::event)));
        Ok(())
    }

    /// Sums the replicas' gradients into the original's, in device order, to round alike: `Broadcast`'s backward pass.
    fn reduce_gradients(&self, variables: &mut ModelVariables, count: usize) -> Result<()> {
        let trace = self.trace();
        let (original, replicas) = variables.first(count);
        let first = self.devices.first();
        let _on = first.guard()?;
        for replica in replicas {
            let mut span = trace.begin(Step::ReduceGradients, first);
            let (mut sums, mut dense) = (Vec::new(), Vec::new());
            // ANCHOR: reduce
            for (parameter, copy) in original.parameters.iter_mut().zip(&replica.parameters) {
                let gradient = copy.grad();
                if !gradient.defined() {
                    continue;
                }
                span.copied(&gradient, first);
                let mut sum = parameter.grad();
                if !sum.defined() {
                    let gradient = first.copy_of(&gradient)?;
                    set_grad(parameter, &gradient).map_err(Error::engine("reduce gradients"))?;
                } else if gradient.device().is_cuda() && !gradient.is_sparse() && !sum.is_sparse() {
                    sums.push(sum);
                    dense.push(gradient);
                } else {
                    let _ = sum.f_add_(&first.copy_of(&gradient)?)?;
                }
            }
            // ANCHOR_END: reduce
            // On GPUs, all of a replica's gradients in few large copies.
            reduce_add_coalesced(&sums, &dense, first)?;
            span.end();
        }
        Ok(())
    }
}

impl SplitInput {
    /// Concatenates the chunks' gradients on the input's device, and clears them.
    fn take_gradient(&self) -> Result<Option<Tensor>> {
        let reached = |chunk: &Tensor| chunk.grad().defined();
        if !self.chunks.iter().any(reached) {
            return Ok(None);
        }
        let device = LogicalDevice::of(&self.whole);
        let _on = device.guard()?;
        let part = |chunk: &Tensor| match reached(chunk) {
            true => device.copy_of(&chunk.grad()),
            false => device.copy_of(&chunk.f_zeros_like()?),
        };
        let parts = self.chunks.iter().map(part).collect::<Result<Vec<_>>>()?;
        let mut chunks = self.chunks.iter().map(Tensor::shallow_clone);
        chunks.try_for_each(|mut it| clear_grad(&mut it)).map_err(Error::engine("backward"))?;
        Ok(Some(Tensor::f_cat(&parts, self.dim)?))
    }
}
