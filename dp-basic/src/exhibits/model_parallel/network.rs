//! `Network` of "How pytorch's parallel method and distributed method works?": two modules, on two devices or on one.

use crate::exhibits::gradients;
use crate::exhibits::spans::{Span, Spans};
use crate::models::{back, front};
use anyhow::Result;
use std::time::Instant;
use tch::{Kind, Tensor, nn::Module, nn::Path, nn::Sequential, nn::VarStore};
use tch_parallel::{LogicalDevice, optim::Optimizer, optim::Sgd, optim::SgdOptions};

/// One part of the network, with its parameters and its optimizer.
pub struct Part {
    /// The device that holds the parameters and runs the module.
    pub device: LogicalDevice,
    pub vs: VarStore,
    module: Sequential,
    optimizer: Sgd,
}

pub struct Network {
    /// Maps inputs to activations.
    pub module1: Part,
    /// Maps activations to logits.
    pub module2: Part,
}

pub struct Step {
    pub logits: Tensor,
    pub labels: Tensor,
    pub loss: Tensor,
    /// Which device did what, and when.
    pub spans: Vec<Span>,
}

impl Part {
    fn new(device: LogicalDevice, build: impl Fn(&Path<'_>) -> Sequential) -> Result<Self> {
        // Memory allocated under this guard counts as the device's.
        let _on = device.guard()?;
        let vs = VarStore::new(device.into());
        let module = build(&vs.root());
        let optimizer = Sgd::new(&vs, SgdOptions { lr: 0.01, ..Default::default() })?;
        Ok(Part { device, vs, module, optimizer })
    }
}

impl Network {
    /// `module1` on the first device and `module2` on the second, which may be the same.
    pub fn new([first, second]: [LogicalDevice; 2]) -> Result<Self> {
        Ok(Network { module1: Part::new(first, front)?, module2: Part::new(second, back)? })
    }

    /// The gradients of both parts in one row, on the CPU.
    pub fn gradients(&self) -> Tensor {
        Tensor::cat(&[gradients(&self.module1.vs), gradients(&self.module2.vs)], 0)
    }

    /// One training step: inputs `[batch, 784]` and labels `[batch]` may be on any device.
    pub fn step(&mut self, inputs: &Tensor, labels: &Tensor) -> Result<Step> {
        let Network { module1, module2 } = self;
        let (first, second) = (module1.device, module2.device);
        module1.optimizer.zero_grad()?;
        module2.optimizer.zero_grad()?;
        let mut spans = Spans { began: Instant::now(), list: Vec::new() };

        // ANCHOR: forward
        let x =
            spans.on("forward 1", first, || Ok(module1.module.forward(&first.copy_of(inputs)?)))?;
        let split = first != second;
        let moved =
            if split { spans.on("copy", second, || moved(&x, second))? } else { x.shallow_clone() };
        let logits = spans.on("forward 2", second, || Ok(module2.module.forward(&moved)))?;
        // ANCHOR_END: forward

        // ANCHOR: backward
        // The loss is computed where the logits are, so the labels must be there as well.
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

/// A copy of an activation on another device, at which a new graph starts.
///
/// With GPUs, `x.to("cuda:1")` would be enough. To autograd, all logical devices are one CPU:
/// without the cut it would run both halves of the backward pass as work of one device.
fn moved(x: &Tensor, device: LogicalDevice) -> Result<Tensor> {
    Ok(device.copy_of(x)?.detach().set_requires_grad(true))
}

/// The backward pass from `output`, whose gradient is known. tch can start only from a scalar, so
/// this takes one whose gradient with respect to `output` is `gradient`.
fn backward_from(output: &Tensor, gradient: &Tensor) -> Result<(), tch::TchError> {
    (output * gradient).sum(Kind::Float).f_backward()
}
