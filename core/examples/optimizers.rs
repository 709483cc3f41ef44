//! Twelve steps with each of these optimizers, all at once and with an interruption; saves the
//! weights and the optimizers' state, which equal Python's to the last bit.
//!
//! ```text
//! cargo run -rq -p tch-parallel --example optimizers -- optimizers.safetensors \
//!     '{"optimizer": "RMSprop", "options": {"lr": 0.1}, "problem": "double"}' …
//! ```

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::{env, ops::Range};
use tch::{Device, Kind, Reduction, Tensor, nn::Module, nn::VarStore};
use tch_parallel::LogicalDevice;
use tch_parallel::nn::{EmbeddingOptions, LinearOptions, embedding, linear};
use tch_parallel::optim::*;

const STEPS: i64 = 12;

#[derive(Deserialize)]
struct Case {
    /// PyTorch's name.
    optimizer: String,
    /// Its keyword arguments.
    options: Map<String, Value>,
    problem: String,
    /// Where to train: on the CPU, or on the first GPU.
    #[serde(default)]
    on_gpu: bool,
}

fn main() -> Result<()> {
    let mut arguments = env::args().skip(1);
    let file = arguments.next().context("the first argument is missing: a file to write")?;
    let mut saved = Vec::new();
    for (number, case) in arguments.enumerate() {
        let case: Case = serde_json::from_str(&case)?;
        let whole = run(&case, std::slice::from_ref(&(0..STEPS)))?;
        ensure!(run(&case, &[0..5, 5..STEPS])? == whole, "an interruption changes {number}");
        saved.extend(whole.into_iter().map(|(name, tensor)| (format!("{number}.{name}"), tensor)));
    }
    Ok(Tensor::write_safetensors(&saved, file)?)
}

/// Makes these steps, each range with a new optimizer that continues with the state of the last.
fn run(case: &Case, ranges: &[Range<i64>]) -> Result<Vec<(String, Tensor)>> {
    let mut vs = VarStore::new(Device::Cpu);
    let loss = loss(&case.problem, &mut vs)?;
    let home = if case.on_gpu { LogicalDevice::Cuda(0) } else { LogicalDevice::Cpu(0) };
    let device = Device::from(home.check()?);
    // The weights were drawn on the CPU, as in Python.
    vs.set_device(device);
    let mut state: Option<OptimizerState> = None;
    for steps in ranges {
        let mut optimizer = optimizer(case, &vs)?;
        if let Some(state) = &state {
            optimizer.load_state_dict(state)?;
        }
        for step in steps.clone() {
            optimizer.zero_grad()?;
            loss(step, device).backward();
            optimizer.step()?;
        }
        state = Some(optimizer.state_dict()?);
    }
    let mut saved: Vec<_> = vs.variables().into_iter().collect();
    saved.sort_by(|(a, _), (b, _)| a.cmp(b));
    saved.extend(state.into_iter().flat_map(|state| state.tensors));
    Ok(saved.into_iter().map(|(name, tensor)| (name, plain(&tensor.to(Device::Cpu)))).collect())
}

/// What a safetensors file can hold.
fn plain(tensor: &Tensor) -> Tensor {
    let tensor = tensor.detach();
    match tensor.is_complex() {
        true => tensor.view_as_real().copy(),
        false => tensor.to_dense(None, false).copy(),
    }
}

fn optimizer(case: &Case, vs: &VarStore) -> Result<Box<dyn Optimizer>> {
    match case.optimizer.as_str() {
        "SGD" => with_options(case, vs, SgdOptions::default()),
        "Adam" => with_options(case, vs, AdamOptions::default()),
        "AdamW" => with_options(case, vs, AdamOptions::adamw()),
        "RMSprop" => with_options(case, vs, RmsPropOptions::default()),
        "Adagrad" => with_options(case, vs, AdagradOptions::default()),
        "Adadelta" => with_options(case, vs, AdadeltaOptions::default()),
        "RAdam" => with_options(case, vs, RAdamOptions::default()),
        "NAdam" => with_options(case, vs, NAdamOptions::default()),
        "SparseAdam" => with_options(case, vs, SparseAdamOptions::default()),
        other => bail!("no optimizer is called {other}"),
    }
}

/// An optimizer with Python's keyword arguments in the place of defaults.
fn with_options<R: UpdateRule>(
    case: &Case,
    vs: &VarStore,
    defaults: R,
) -> Result<Box<dyn Optimizer>> {
    let mut all = json!(defaults);
    case.options.iter().for_each(|(name, value)| all[name] = value.clone());
    let given: R = serde_json::from_value(all)?;
    if let Some(name) = case.options.keys().find(|name| json!(given).get(name).is_none()) {
        bail!("no option is called {name}");
    }
    Ok(Box::new(ParamGroupOptimizer::new(vs, given)?))
}

/// The loss of a step, on the device to which the model has been moved.
type Loss = Box<dyn Fn(i64, Device) -> Tensor>;

/// Fills the store with a model, and returns the loss of each step.
fn loss(problem: &str, vs: &mut VarStore) -> Result<Loss> {
    Ok(match problem {
        "float" => words(vs, Kind::Float),
        "double" => words(vs, Kind::Double),
        "bfloat16" => words(vs, Kind::BFloat16),
        "complex" => {
            let start = Tensor::complex(&waves(0, &[7, 5]), &waves(1, &[7, 5]));
            let weight = vs.root().add("weight", start, true);
            Box::new(move |step, device| {
                let factor = Tensor::complex(&waves(step, &[5]), &waves(step + 2, &[5]));
                let error = &weight * factor.to(device) - 0.5;
                error.view_as_real().square().mean(None)
            })
        }
        "sparse" => {
            let weight = vs.root().add("weight", waves(0, &[50, 19]), true);
            let (padding_idx, scale_grad_by_freq, sparse) = (-1, false, true);
            Box::new(move |step, device| {
                // One step without a word: its gradient is empty.
                let chosen = sentences(step).narrow(0, 0, if step == 5 { 0 } else { 8 }).to(device);
                let words =
                    Tensor::embedding(&weight, &chosen, padding_idx, scale_grad_by_freq, sparse);
                (words.square() * waves(step, &[6, 19]).to(device)).sum(None)
            })
        }
        other => bail!("no problem is called {other}"),
    })
}

fn words(vs: &mut VarStore, kind: Kind) -> Loss {
    tch::manual_seed(0);
    let padding = EmbeddingOptions { padding_idx: Some(0), ..Default::default() };
    let tokens = embedding(vs.root() / "embedding", 50, 19, padding);
    let classes = linear(vs.root() / "linear", 19, 5, LinearOptions::default());
    vs.set_kind(kind);
    Box::new(move |step, device| {
        let means = tokens.forward(&sentences(step).to(device)).mean_dim(1, false, None);
        let (targets, no_index, smoothing) = (count(8).remainder(5).to(device), -100, 0.0);
        let logits = classes.forward(&means);
        logits.cross_entropy_loss::<Tensor>(&targets, None, Reduction::Mean, no_index, smoothing)
    })
}

fn sentences(step: i64) -> Tensor {
    (count(8 * 6) * (step + 7)).remainder(50).view([8, 6])
}

fn waves(step: i64, shape: &[i64]) -> Tensor {
    let numbers = count(shape.iter().product()).to_kind(Kind::Float);
    (numbers * 0.37 + step).sin().view(shape)
}

fn count(n: i64) -> Tensor {
    Tensor::arange(n, (Kind::Int64, Device::Cpu))
}
