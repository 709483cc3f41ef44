//! Twelve steps of a small network in mixed precision; saves the losses, the scale after each step and the weights,
//! which equal Python's to the last bit. With float16 some steps overflow and are left out.
//!
//! ```text
//! cargo run -rq -p tch-parallel --example amp -- float16 amp.safetensors
//! cargo run -rq -p tch-parallel --features cuda --example amp -- float16 amp.safetensors cuda:0
//! ```

use anyhow::{Context, Result, bail};
use std::env;
use tch::nn::{self, ModuleT, VarStore};
use tch::{Device, Kind, Reduction, Tensor, no_grad};
use tch_parallel::LogicalDevice;
use tch_parallel::amp::{GradScaler, GradScalerOptions, autocast};
use tch_parallel::optim::{Optimizer, Sgd, SgdOptions};

fn main() -> Result<()> {
    let mut arguments = env::args().skip(1);
    let kind = match arguments.next().as_deref() {
        Some("bfloat16") => Kind::BFloat16,
        Some("float16") => Kind::Half,
        other => bail!("the first argument is {other:?}, but must be bfloat16 or float16"),
    };
    let file = arguments.next().context("the second argument is missing: a file to write")?;

    let home = arguments.next().as_deref().unwrap_or("cpu:0").parse::<LogicalDevice>()?.check()?;
    let device = Device::from(home);

    let vs = VarStore::new(device);
    let model = nn::seq_t()
        .add(nn::linear(vs.root() / "fc1", 192, 32, Default::default()))
        .add_fn(|xs| xs.relu())
        .add(nn::linear(vs.root() / "fc2", 32, 5, Default::default()));
    for mut parameter in vs.trainable_variables() {
        let start = waves(parameter.numel()).to_device(device) * 0.1;
        no_grad(|| parameter.copy_(&start.view_as(&parameter)));
    }
    let mut optimizer =
        Sgd::new(&vs, SgdOptions { lr: 0.01, momentum: 0.9, ..Default::default() })?;
    // So large that it overflows, and grows so soon that it overflows again.
    let options =
        GradScalerOptions { init_scale: 2f64.powi(20), growth_interval: 3, ..Default::default() };
    let mut scaler = GradScaler::new(options)?;

    let (mut losses, mut scales) = (Vec::new(), Vec::new());
    for step in 0..12 {
        let inputs = (waves(4 * 192).to_device(device) + 0.1 * step as f64).view([4, 192]);
        let labels = (Tensor::arange(4, (Kind::Int64, device)) + step).remainder(5);
        let loss = autocast(vs.device(), Some(kind), || {
            let logits = model.forward_t(&inputs, true);
            // On a GPU, autocast gives tch's `cross_entropy_for_logits` another precision.
            logits.cross_entropy_loss(&labels, None::<Tensor>, Reduction::Mean, -100, 0.0)
        })?;
        optimizer.zero_grad()?;
        scaler.scale(&loss)?.backward();
        let made = scaler.step(&mut optimizer)?;
        scaler.update()?;

        losses.push(f32::try_from(&loss)?);
        scales.push(scaler.get_scale()? as f32);
        let left_out = if made { "" } else { ", left out" };
        println!("step {step}: loss {:.4}{left_out}", losses[losses.len() - 1]);
    }

    let mut saved: Vec<_> = vs.variables().into_iter().collect();
    saved.iter_mut().for_each(|(_, tensor)| *tensor = tensor.to_device(Device::Cpu));
    saved.push(("losses".into(), Tensor::from_slice(&losses)));
    saved.push(("scales".into(), Tensor::from_slice(&scales)));
    Ok(Tensor::write_safetensors(&saved, file)?)
}

/// The same numbers in both languages, without a generator.
fn waves(count: usize) -> Tensor {
    (Tensor::arange(count as i64, (Kind::Float, Device::Cpu)) * 0.37).sin()
}
