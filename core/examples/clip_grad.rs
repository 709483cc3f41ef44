//! Ten steps with gradients that are clipped before each; saves their norms and the weights, which
//! equal Python's to the last bit.
//!
//! ```text
//! cargo run -rq -p tch-parallel --example clip_grad -- clip_grad_norm_ 0.5 2 clip_grad.safetensors
//! ```

use anyhow::{Context, Result, bail};
use std::env;
use tch::{Device, Kind, Tensor, nn::Module, nn::VarStore};
use tch_parallel::nn::{LinearOptions, linear};
use tch_parallel::optim::{
    ClipGradNormOptions, Optimizer, Sgd, SgdOptions, clip_grad_norm_, clip_grad_value_,
    get_total_norm,
};

fn main() -> Result<()> {
    let mut arguments = env::args().skip(1);
    let mut next = |what| arguments.next().with_context(|| format!("{what} is missing"));
    let function = next("clip_grad_norm_ or clip_grad_value_")?;
    let limit: f64 = next("the limit")?.parse()?;
    let norm_type: f64 = next("the type of the norm")?.parse()?;
    let clipped = ClipGradNormOptions { norm_type, error_if_nonfinite: true, ..limit.into() };
    let file = next("a file to write")?;

    tch::manual_seed(0);
    let vs = VarStore::new(Device::Cpu);
    let layer =
        |name, inputs, outputs| linear(vs.root() / name, inputs, outputs, LinearOptions::default());
    // The one in the middle takes no part: its parameters have no gradient.
    let layers = [layer("first", 13, 37), layer("idle", 3, 3), layer("last", 37, 5)];
    let mut optimizer = Sgd::new(&vs, SgdOptions { lr: 0.5, momentum: 0.9, ..Default::default() })?;

    let labels = Tensor::arange(8, (Kind::Int64, Device::Cpu)).remainder(5);
    let mut norms = Vec::new();
    for step in 0..10 {
        let numbers = Tensor::arange(8 * 13, (Kind::Float, Device::Cpu)) * 0.37 + step;
        let hidden = layers[0].forward(&numbers.sin().view([8, 13])).relu();
        let loss = layers[2].forward(&hidden).cross_entropy_for_logits(&labels);
        optimizer.zero_grad()?;
        loss.backward();
        match function.as_str() {
            "clip_grad_norm_" => norms.push(clip_grad_norm_(&optimizer.parameters(), clipped)?),
            "clip_grad_value_" => clip_grad_value_(&optimizer.parameters(), limit)?,
            other => bail!("there is no {other}"),
        }
        optimizer.step()?;
        println!("step {step}: loss {:.4}", loss.double_value(&[]));
    }

    let mut saved: Vec<_> = vs.variables().into_iter().collect();
    if !norms.is_empty() {
        norms.push(get_total_norm(&vs.trainable_variables(), norm_type)?);
        saved.push(("norms".into(), Tensor::from_slice(&norms).to_kind(Kind::Float)));
    }
    Ok(Tensor::write_safetensors(&saved, file)?)
}
