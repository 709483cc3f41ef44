//! A small problem for the optimizers' tests.

use crate::Result;
use std::ops::Range;
use tch::nn::{self, Module, VarStore};
use tch::{Device, Kind, Tensor};

pub(super) struct Problem {
    pub vs: VarStore,
    layer: nn::Linear,
}

impl Problem {
    /// Always the same: a weight of shape [3, 5] and a bias of shape [3].
    pub(super) fn new() -> Problem {
        let vs = VarStore::new(Device::Cpu);
        // Not random: tests run in parallel and share one global generator.
        let variable = |name, values: Tensor| vs.root().var_copy(name, &values);
        let ws = variable("weight", waves(0, 15).view([3, 5]));
        let bs = Some(variable("bias", waves(15, 3)));
        Problem { vs, layer: nn::Linear { ws, bs } }
    }

    /// Computes the gradients for each step; `step` must apply and clear them.
    pub(super) fn run(&self, steps: Range<i64>, mut step: impl FnMut() -> Result<()>) {
        for number in steps {
            let xs = waves(number, 20).view([4, 5]);
            self.layer.forward(&xs).square().mean(Kind::Float).backward();
            step().unwrap();
        }
    }

    pub(super) fn weights(&self) -> Vec<f32> {
        Vec::try_from(self.layer.ws.view([-1])).unwrap()
    }
}

fn waves(from: i64, count: i64) -> Tensor {
    Tensor::arange_start(from, from + count, (Kind::Float, Device::Cpu)).sin()
}
