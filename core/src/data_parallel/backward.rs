//! The way back: every replica's backward pass on its own thread, then one sum.

use super::replicate::{SharedParts, SplitInput, lock};
use super::trace::Step;
use crate::{Error, LogicalDevice, Result};
use c10d_sys::autograd;
use c10d_sys::tensor::clear_grad;
use tch::{Tensor, no_grad};

/// Where a replica's backward pass begins.
#[derive(Default)]
pub(super) struct Roots {
    /// Ends of the replica's graph.
    pub(super) outputs: Vec<Tensor>,
    /// The gradient with respect to each, on the replica's device.
    pub(super) gradients: Vec<Tensor>,
}

impl SharedParts {
    /// Runs the backward passes of the first replicas, one for each of `roots`, and adds all their
    /// gradients to the original's.
    pub(super) fn backward(&self, roots: Vec<Roots>, inputs: &[SplitInput]) -> Result<()> {
        let trace = self.trace();
        let count = roots.len();
        let passes = self.workers.parallel_apply("backward", roots, |device, roots| {
            let span = trace.begin(Step::Backward, device);
            if !roots.outputs.is_empty() {
                autograd::backward(&roots.outputs, &roots.gradients)
                    .map_err(|error| failed(device, &error))?;
            }
            span.end();
            Ok(())
        });
        let reduced = passes.and_then(|_| no_grad(|| self.reduce_gradients(count)));
        // Replicas keep no gradients, even where something failed.
        for copy in self.variables.iter().take(count).skip(1) {
            for parameter in &mut lock(copy).parameters {
                clear_grad(parameter).map_err(Error::engine("backward"))?;
            }
        }
        reduced?;
        hand_on(inputs)
    }

    /// Sums the replicas' gradients into the original's, in the order of the devices, so that the
    /// rounding is always the same. The backward pass of PyTorch's `Broadcast`.
    fn reduce_gradients(&self, count: usize) -> Result<()> {
        let trace = self.trace();
        let mut original = lock(&self.variables[0]);
        let first = self.devices.first();
        let _on = first.guard()?;
        for copy in self.variables.iter().take(count).skip(1) {
            let mut span = trace.begin(Step::ReduceGradients, first);
            for (parameter, replica) in original.parameters.iter_mut().zip(&lock(copy).parameters) {
                let gradient = replica.grad();
                if !gradient.defined() {
                    continue;
                }
                span.copied(&gradient, first);
                let gradient = first.copy_of(&gradient)?;
                let mut sum = parameter.grad();
                if sum.defined() {
                    let _ = sum.f_add_(&gradient).map_err(Error::tensor("reduce gradients"))?;
                } else {
                    c10d_sys::tensor::set_grad(parameter, &gradient)
                        .map_err(Error::engine("reduce gradients"))?;
                }
            }
            span.end();
        }
        Ok(())
    }
}

/// Inputs may come from a model of their own, which waits for their gradients.
fn hand_on(inputs: &[SplitInput]) -> Result<()> {
    let mut wholes = Vec::new();
    let mut gradients = Vec::new();
    for input in inputs {
        let device = LogicalDevice::of(&input.whole);
        let _on = device.guard()?;
        let parts = input
            .chunks
            .iter()
            .map(|chunk| {
                let gradient = chunk.grad();
                if gradient.defined() {
                    device.copy_of(&gradient)
                } else {
                    chunk.f_zeros_like().map_err(Error::tensor("backward"))
                }
            })
            .collect::<Result<Vec<_>>>()?;
        gradients.push(Tensor::f_cat(&parts, input.dim).map_err(Error::tensor("backward"))?);
        wholes.push(input.whole.shallow_clone());
    }
    if wholes.is_empty() {
        return Ok(());
    }
    autograd::backward(&wholes, &gradients).map_err(Error::engine("backward"))
}

fn failed(device: LogicalDevice, error: &c10d_sys::Error) -> Error {
    Error::Replica { device, operation: "backward", message: error.message().to_owned() }
}
