//! Muon, as an example of your own optimizer. Makes twelve steps with each set of options, interrupted once,
//! and saves the weights and the state, which equal those of `torch.optim.Muon` to the last bit.
//!
//! ```text
//! cargo run -rq -p tch-parallel --example muon -- muon.safetensors \
//!     '{"optimizer": "Muon", "options": {"lr": 0.1}, "problem": "matrices"}' …
//! ```

use anyhow::{Context, ensure};
use serde::{Deserialize, Serialize};
use std::env;
use tch::{Device, Kind, Tensor, nn::VarStore};
use tch_parallel::optim::{
    GroupOptions, Optimizer, OptimizerState, ParamGroupOptimizer, StateShape, Step, TensorList,
    UpdateRule,
};
use tch_parallel::{Error, Result};

/// Moves a matrix along its momentum, whose singular values are brought near 1 (Jordan, "Muon", 2024). With PyTorch's
/// keyword arguments.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct MuonOptions {
    lr: f64,
    weight_decay: f64,
    momentum: f64,
    nesterov: bool,
    ns_coefficients: [f64; 3],
    eps: f64,
    ns_steps: usize,
    adjust_lr_fn: AdjustLr,
}

/// What the learning rate of a matrix depends on besides `lr`.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum AdjustLr {
    /// Its ratio of height to width, if that is above 1.
    Original,
    /// Its longer side, so that learning rates for AdamW fit.
    MatchRmsAdamw,
}

impl Default for MuonOptions {
    fn default() -> Self {
        MuonOptions {
            lr: 1e-3,
            weight_decay: 0.1,
            momentum: 0.95,
            nesterov: true,
            ns_coefficients: [3.4445, -4.7750, 2.0315],
            eps: 1e-7,
            ns_steps: 5,
            adjust_lr_fn: AdjustLr::Original,
        }
    }
}

impl GroupOptions for MuonOptions {
    fn lr(&self) -> f64 {
        self.lr
    }

    fn set_lr(&mut self, lr: f64) {
        self.lr = lr;
    }
}

impl UpdateRule for MuonOptions {
    fn name(&self) -> &'static str {
        "Muon"
    }

    fn state_layout(&self) -> Vec<(&'static str, StateShape)> {
        vec![("momentum_buffer", StateShape::Parameter)]
    }

    /// Gets one parameter at a time, because the options have no `foreach`.
    fn step(&self, mut step: Step<'_>) -> Result<()> {
        let size = step.parameters[0].size();
        let &[rows, columns] = &size[..] else {
            return Err(Error::argument("a parameter", format!("of shape {size:?}"), "a matrix"));
        };
        let mut updates = step.zeros_like("momentum_buffer")?;
        updates.lerp_(&step.gradients, 1.0 - self.momentum)?;
        if self.nesterov {
            let mut ahead = step.gradients.copy()?;
            ahead.lerp_(&updates, self.momentum)?;
            updates = ahead;
        }
        let updates = TensorList::from(vec![self.orthogonalize(&updates[0], rows > columns)?]);
        let (rows, columns) = (rows as f64, columns as f64);
        let adjusted = match self.adjust_lr_fn {
            AdjustLr::Original => (rows / columns).max(1.0).sqrt(),
            AdjustLr::MatchRmsAdamw => 0.2 * rows.max(columns).sqrt(),
        };
        step.parameters.mul_number_(1.0 - self.lr * self.weight_decay)?;
        step.parameters.add_scaled_(&updates, -(self.lr * adjusted))
    }
}

impl MuonOptions {
    /// The Newton-Schulz iteration, on the transpose if the matrix is taller than wide.
    fn orthogonalize(&self, update: &Tensor, is_tall: bool) -> Result<Tensor> {
        let turned = |matrix: Tensor| if is_tall { matrix.f_tr() } else { Ok(matrix) };
        let mut matrices =
            TensorList::from(vec![turned(update.f_to_kind(Kind::BFloat16)?)?]).copy()?;
        let mut norms = matrices.norm(2.0)?;
        norms.clamp_min_(self.eps)?;
        matrices.div_(&norms)?;
        let [a, b, c] = self.ns_coefficients;
        let mut matrix = matrices[0].shallow_clone();
        for _ in 0..self.ns_steps {
            let gram = matrix.f_matmul(&matrix.f_tr()?)?;
            matrix = addmm(&matrix, &addmm(&gram, &gram, &gram, b, c)?, &matrix, a, 1.0)?;
        }
        Ok(turned(matrix)?)
    }
}

/// `torch.addmm`: `beta * input + alpha * (a @ b)`, rounded once. tch's has neither factor, but its `baddbmm` has both.
fn addmm(input: &Tensor, a: &Tensor, b: &Tensor, beta: f64, alpha: f64) -> Result<Tensor> {
    let batch = |matrix: &Tensor| matrix.f_unsqueeze(0);
    let sum = batch(input)?.f_baddbmm(&batch(a)?, &batch(b)?, beta, alpha)?;
    Ok(sum.f_squeeze_dim(0)?)
}

fn main() -> anyhow::Result<()> {
    let mut arguments = env::args().skip(1);
    let file = arguments.next().context("the first argument is missing: a file to write")?;
    let mut saved = Vec::new();
    for (number, case) in arguments.enumerate() {
        let mut case: serde_json::Value = serde_json::from_str(&case)?;
        ensure!(case["problem"] == "matrices", "Muon is for matrices");
        let options = serde_json::from_value(case["options"].take())?;
        let numbered = |(name, tensor): (String, Tensor)| (format!("{number}.{name}"), tensor);
        saved.extend(train(&options)?.into_iter().map(numbered));
    }
    Ok(Tensor::write_safetensors(&saved, file)?)
}

fn train(options: &MuonOptions) -> anyhow::Result<Vec<(String, Tensor)>> {
    let vs = VarStore::new(Device::Cpu);
    let weight = |name, shape: [i64; 2]| vs.root().add(name, waves(0, shape), true);
    let [tall, square, wide] =
        [("tall", [32, 19]), ("square", [32, 32]), ("wide", [5, 32])].map(|(n, s)| weight(n, s));
    let mut state: Option<OptimizerState> = None;
    for steps in [0..5, 5..12] {
        let mut optimizer = ParamGroupOptimizer::new(&vs, options.clone())?;
        if let Some(state) = &state {
            optimizer.load_state_dict(state)?;
        }
        for step in steps {
            let hidden = waves(step, [8, 19]).matmul(&tall.tr()).tanh().matmul(&square.tr()).tanh();
            optimizer.zero_grad()?;
            hidden.matmul(&wide.tr()).square().mean(None).backward();
            optimizer.step()?;
        }
        state = Some(optimizer.state_dict()?);
    }
    let state = state.context("there are no steps")?.tensors;
    Ok(vs.variables().into_iter().chain(state).collect())
}

fn waves(step: i64, shape: [i64; 2]) -> Tensor {
    let numbers = Tensor::arange(shape[0] * shape[1], (Kind::Float, Device::Cpu));
    (numbers * 0.37 + step).sin().view(shape)
}
