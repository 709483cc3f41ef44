//! `Network` of the thread "How pytorch's parallel method and distributed method works?": two
//! modules, on two devices or on one.

use crate::exhibits::spans::{Span, Spans};
use crate::models::{back, front};
use anyhow::Result;
use tch::nn::{Module, Path, Sequential, VarStore};
use tch::{Kind, Tensor};
use tch_parallel::LogicalDevice;
use tch_parallel::optim::{Optimizer, Sgd, SgdOptions};

/// A module that is a network's part, and what belongs to it.
#[derive(Debug)]
pub struct Part {
    /// Where its parameters are, and where it runs.
    pub device: LogicalDevice,
    /// Its parameters.
    pub vs: VarStore,
    module: Sequential,
    optimizer: Sgd,
}

/// Two modules in a row.
#[derive(Debug)]
pub struct Network {
    /// Takes the inputs.
    pub module1: Part,
    /// Takes what `module1` gives, and gives the logits.
    pub module2: Part,
}

/// What a training step has come to.
#[derive(Debug)]
pub struct Step {
    /// What `module2` has given.
    pub logits: Tensor,
    /// The labels that they were compared with.
    pub labels: Tensor,
    /// The loss.
    pub loss: Tensor,
    /// What was done when, and where.
    pub spans: Vec<Span>,
}

impl Part {
    fn new(device: LogicalDevice, build: impl Fn(&Path<'_>) -> Sequential) -> Result<Self> {
        // What is allocated meanwhile belongs to the device.
        let _on = device.guard()?;
        let vs = VarStore::new(device.into());
        let module = build(&vs.root());
        let optimizer = Sgd::new(&vs, SgdOptions { lr: 0.01, ..Default::default() })?;
        Ok(Part { device, vs, module, optimizer })
    }

    /// Bytes of the parameters, and as many again of their gradients.
    pub fn parameter_bytes(&self) -> usize {
        self.vs.trainable_variables().iter().map(|tensor| tensor.numel() * size_of::<f32>()).sum()
    }
}

impl Network {
    /// `module1` on the first device and `module2` on the second, which may be the same.
    pub fn new(devices: [LogicalDevice; 2]) -> Result<Self> {
        let [first, second] = devices;
        Ok(Network { module1: Part::new(first, front)?, module2: Part::new(second, back)? })
    }

    /// Takes over the weights of another network.
    pub fn copy_weights(&mut self, other: &Network) -> Result<()> {
        self.module1.vs.copy(&other.module1.vs)?;
        Ok(self.module2.vs.copy(&other.module2.vs)?)
    }

    /// One step: inputs `[batch, 784]` and labels `[batch]` may be on any device.
    pub fn step(&mut self, inputs: &Tensor, labels: &Tensor) -> Result<Step> {
        let Network { module1, module2 } = self;
        let (first, second) = (module1.device, module2.device);
        module1.optimizer.zero_grad()?;
        module2.optimizer.zero_grad()?;
        let mut spans = Spans::new();

        // ANCHOR: forward
        let x =
            spans.on("forward 1", first, || Ok(module1.module.forward(&first.copy_of(inputs)?)))?;
        let split = first != second;
        let moved =
            if split { spans.on("copy", second, || moved(&x, second))? } else { x.shallow_clone() };
        let logits = spans.on("forward 2", second, || Ok(module2.module.forward(&moved)))?;
        // ANCHOR_END: forward

        // ANCHOR: backward
        // The loss is where the logits are, so the labels have to be there as well.
        let labels = second.copy_of(labels)?;
        let loss = spans.on("loss", second, || Ok(logits.cross_entropy_for_logits(&labels)))?;
        let backward = if split { "backward 2" } else { "backward" };
        spans.on(backward, second, || Ok(loss.f_backward()?))?;
        if split {
            let gradient = spans.on("copy back", first, || Ok(first.copy_of(&moved.grad())?))?;
            spans.on("backward 1", first, || Ok(backward_from(&x, &gradient)?))?;
        }
        // ANCHOR_END: backward

        spans.on("optimizer 1", first, || Ok(module1.optimizer.step()?))?;
        spans.on("optimizer 2", second, || Ok(module2.optimizer.step()?))?;
        Ok(Step { logits: logits.detach(), labels, loss: loss.detach(), spans: spans.list })
    }
}

/// An activation on another device, where the graph begins anew.
///
/// Among GPUs `x.to("cuda:1")` would do: it is differentiable, and autograd runs each operation's
/// backward pass on the device of the operation. All logical devices are one CPU to autograd, which
/// would run both halves of a single backward pass on this thread, for one device. So the graph is
/// cut here, and each half runs under its own device.
fn moved(x: &Tensor, device: LogicalDevice) -> Result<Tensor> {
    Ok(device.copy_of(x)?.detach().set_requires_grad(true))
}

/// The backward pass from `output`, whose gradient is known. tch begins at a single number only:
/// the gradient of this sum with respect to `output` is `gradient`.
fn backward_from(output: &Tensor, gradient: &Tensor) -> Result<(), tch::TchError> {
    (output * gradient).sum(Kind::Float).f_backward()
}
