//! SyncBatchNorm on a batch that the ranks share: two steps of training, and an evaluation. Each rank
//! saves its part of the result, and all together are what a BatchNorm1d, 2d or 3d in Python makes of
//! the whole batch. After the directory comes the device, `cpu` or `cuda`, and the size of a sample:
//! nothing, or that of a sequence, an image or a volume. Several ranks can share one GPU.
//!
//! ```text
//! cargo launch -n 3 -- cargo run -rq -p tch-parallel --example sync_batch_norm -- DIRECTORY cpu 5 6
//! ```

use anyhow::{Context, Result};
use std::{env, path::PathBuf};
use tch::{Device, Kind, Tensor, nn::VarStore};
use tch_parallel::distributed::{Backend, ProcessGroupOptions, init_process_group};
use tch_parallel::nn::{BatchNormOptions, sync_batch_norm};

/// Samples of all ranks: three ranks cannot have equally many.
const BATCH: i64 = 7;
const CHANNELS: i64 = 4;

fn main() -> Result<()> {
    let mut arguments = env::args().skip(1);
    let directory = arguments.next().context("the argument is missing: where to save")?;
    let device = arguments.next().context("the argument is missing: a device")?.parse()?;
    let lengths = arguments.map(|length| length.parse()).collect::<Result<Vec<i64>, _>>()?;
    let size = [vec![BATCH, CHANNELS], lengths].concat();
    let backend = Some(Backend::Gloo);
    let group = init_process_group(ProcessGroupOptions { backend, device, ..Default::default() })?;
    let device = group.device();
    let vs = VarStore::new(device);
    let layer = sync_batch_norm(vs.root(), CHANNELS, &group, BatchNormOptions::default());

    // The same numbers on every rank, each of which takes its rows of them.
    tch::manual_seed(0);
    let ranks = group.world_size() as i64;
    let mine = |all: Tensor| all.tensor_split(ranks, 0)[group.rank()].to(device);
    let draw = || Tensor::randn(&size[..], (Kind::Float, Device::Cpu));
    let mut saved = Vec::new();
    for step in 0..2 {
        let inputs = mine(draw() * 3 + 2).set_requires_grad(true);
        let output = layer.f_forward_t(&inputs, true)?;
        (&output * mine(draw())).sum(Kind::Float).backward();
        saved.push((format!("output.{step}"), output.detach()));
        saved.push((format!("inputs.grad.{step}"), inputs.grad()));
    }
    saved.push(("output.eval".into(), layer.f_forward_t(&mine(draw()), false)?.detach()));
    for (name, variable) in vs.variables() {
        if variable.requires_grad() {
            saved.push((format!("{name}.grad"), variable.grad()));
        }
        saved.push((name, variable.detach()));
    }
    saved.iter_mut().for_each(|(_, tensor)| *tensor = tensor.to(Device::Cpu));
    let file = PathBuf::from(directory).join(format!("rank{}.safetensors", group.rank()));
    Ok(Tensor::write_safetensors(&saved, file)?)
}
