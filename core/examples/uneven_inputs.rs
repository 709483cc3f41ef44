//! Ranks with different numbers of batches: within `join` nobody waits for those that have ended.
//! Every rank trains with three more batches of digits than the rank before it, and saves its
//! losses and weights in a directory; they equal Python's to the last bit.
//!
//! ```text
//! cargo launch -n 2 -- cargo run -rq -p tch-parallel --example uneven_inputs -- '{"divide_by_initial_world_size": false}' .
//! ```

use anyhow::{Context, Result};
use serde_json::Value;
use std::env;
use std::path::PathBuf;
use tch::nn::{self, VarStore};
use tch::{Device, Tensor};
use tch_parallel::data::{Dataset, Mnist, Split};
use tch_parallel::distributed::{DistributedDataParallel, JoinOptions, ProcessGroup};
use tch_parallel::nn::{LinearOptions, linear};
use tch_parallel::optim::{Optimizer, Sgd, SgdOptions};

const BATCH_SIZE: usize = 64;

fn main() -> Result<()> {
    let mut arguments = env::args().skip(1);
    let options = parse(&arguments.next().context("the options of `join` are missing")?)?;
    let directory = PathBuf::from(arguments.next().context("the directory is missing")?);
    let group = ProcessGroup::from_env()?;
    let device = group.device();

    tch::manual_seed(0);
    let vs = VarStore::new(device);
    let mlp = nn::seq()
        .add_fn(|images| images.flat_view())
        .add(linear(vs.root() / "0", 28 * 28, 32, LinearOptions::default()))
        .add_fn(|x| x.relu())
        .add(linear(vs.root() / "2", 32, 10, LinearOptions::default()));
    let model = DistributedDataParallel::new(mlp, &vs, &group)?;
    let mut optimizer = Sgd::new(&vs, SgdOptions { lr: 0.1, ..Default::default() })?;

    let digits = Mnist::embedded(Split::Train)?;
    let steps = 4 + 3 * group.rank();
    let mut losses = Vec::new();
    // ANCHOR: join
    model.join(options, || -> Result<()> {
        for step in 0..steps {
            let first = (step * group.world_size() + group.rank()) * BATCH_SIZE;
            let indices: Vec<_> = (first..first + BATCH_SIZE).collect();
            let (images, labels) = digits.batch(&indices, 0)?;

            let logits = model.f_forward_t(&images.to(device), true)?;
            let loss = logits.cross_entropy_for_logits(&labels.to(device));
            optimizer.zero_grad()?;
            model.backward(&loss)?;
            optimizer.step()?;
            losses.push(f32::try_from(&loss)?);
        }
        Ok(())
    })?;
    // ANCHOR_END: join

    let mut saved: Vec<_> = vs.variables().into_iter().collect();
    saved.push(("losses".into(), Tensor::from_slice(&losses)));
    saved.iter_mut().for_each(|(_, tensor)| *tensor = tensor.to(Device::Cpu));
    let file = format!("rank{}.safetensors", group.rank());
    Tensor::write_safetensors(&saved, directory.join(file))?;
    Ok(())
}

/// Python's keyword arguments of `model.join`.
fn parse(arguments: &str) -> Result<JoinOptions> {
    let arguments: Value = serde_json::from_str(arguments)?;
    let default = JoinOptions::default();
    Ok(JoinOptions {
        divide_by_initial_world_size: arguments["divide_by_initial_world_size"]
            .as_bool()
            .unwrap_or(default.divide_by_initial_world_size),
        ..default
    })
}
