//! What DataParallel and DistributedDataParallel send in a step, counted while both train a model.
//!
//! ```text
//! TCH_PARALLEL_SHARED_MEMORY=0 cargo launch -n 4 -- cargo run -rq -p tch-parallel --example data_parallel_or_ddp
//! ```

use anyhow::{Context, Result, ensure};
use report::exit;
use std::fs;
use tch::{Device, Kind, Tensor, nn, nn::Path, nn::Sequential, nn::VarStore};
use tch_parallel::Devices;
use tch_parallel::data_parallel::{DataParallel, Step, Trace};
use tch_parallel::distributed::{
    DeviceChoice, DistributedDataParallel, ProcessGroup, ProcessGroupOptions, ReduceOp,
    init_process_group,
};
use tch_parallel::optim::{Optimizer, Sgd, SgdOptions};

const DEVICES: usize = 4;
/// Before them DistributedDataParallel takes two steps, after which its buckets stay as they are.
const STEPS: usize = 100;
const WIDTH: i64 = 512;

fn main() {
    exit(run)
}

fn run() -> Result<()> {
    let options = ProcessGroupOptions { device: DeviceChoice::Cpu, ..Default::default() };
    let group = init_process_group(options)?;
    let ranks = group.world_size();
    ensure!(ranks == DEVICES, "there are {ranks} ranks; expected {DEVICES}");
    let (sent, ddp_loss) = ddp(&group)?;
    if group.rank() > 0 {
        return Ok(());
    }
    let (weights, gradients, loss) = data_parallel()?;
    println!("in a step on {DEVICES} devices, in sizes of the model:");
    println!(
        "DataParallel: {weights:.2} of weights leave the first, {gradients:.2} of gradients come"
    );
    println!("DistributedDataParallel: {sent:.2} of gradients leave each rank, and no weights");
    println!("the last loss: {loss:.4} and {ddp_loss:.4}");
    Ok(())
}

/// What this rank sends in a step, and the last loss of all rows.
fn ddp(group: &ProcessGroup) -> Result<(f64, f64)> {
    let vs = VarStore::new(group.device());
    tch::manual_seed(0);
    let model = DistributedDataParallel::new(mlp(&vs.root()), &vs, group)?;
    let mut optimizer = Sgd::new(&vs, SgdOptions { lr: 0.1, ..Default::default() })?;
    let [x, y] = batch().map(|rows| rows.chunk(DEVICES as i64, 0).swap_remove(group.rank()));
    let (mut before, mut loss) = (0, Tensor::new());
    for step in 0..STEPS + 2 {
        if step == 2 {
            before = bytes_written(group)?;
        }
        loss = model.f_forward_t(&x, true)?.cross_entropy_for_logits(&y);
        optimizer.zero_grad()?;
        model.backward(&loss)?;
        optimizer.step()?;
    }
    let sent = (bytes_written(group)? - before) as f64 / STEPS as f64;
    let mut mean = loss.detach();
    group.all_reduce(&mut mean, ReduceOp::Avg)?;
    Ok((sent / bytes(&vs), mean.double_value(&[])))
}

/// The weights that leave the first device in a step, the gradients that come, and the last loss.
fn data_parallel() -> Result<(f64, f64, f64)> {
    let devices = Devices::cpu(DEVICES)?;
    let vs = VarStore::new(devices.first().into());
    tch::manual_seed(0);
    let model = DataParallel::new(mlp, &vs, &devices)?;
    let mut optimizer = Sgd::new(&vs, SgdOptions { lr: 0.1, ..Default::default() })?;
    let ([x, y], trace) = (batch(), Trace::new());
    model.set_trace(&trace);
    let mut loss = Tensor::new();
    for _step in 0..STEPS + 2 {
        loss = model.f_forward_t(&x, true)?.cross_entropy_for_logits(&y);
        optimizer.zero_grad()?;
        model.backward(&loss)?;
        optimizer.step()?;
    }
    let copied = |step| {
        let events = trace.events().into_iter().filter(|event| event.step == step);
        let copied: usize = events.map(|event| event.bytes_copied).sum();
        copied as f64 / (STEPS + 2) as f64 / bytes(&vs)
    };
    Ok((copied(Step::Replicate), copied(Step::ReduceGradients), loss.double_value(&[])))
}

/// The bytes that this process has handed to the system, its sockets included. A collective: when
/// all ranks are here, none has anything left to write.
fn bytes_written(group: &ProcessGroup) -> Result<usize> {
    group.barrier()?;
    let counts = fs::read_to_string("/proc/self/io")?;
    let written = counts.lines().find_map(|line| line.strip_prefix("wchar: "));
    Ok(written.context("the system does not count what is written")?.parse()?)
}

fn bytes(vs: &VarStore) -> f64 {
    let numbers: usize = vs.trainable_variables().iter().map(Tensor::numel).sum();
    (numbers * size_of::<f32>()) as f64
}

fn batch() -> [Tensor; 2] {
    let numbers = Tensor::arange(32 * WIDTH, (Kind::Float, Device::Cpu));
    let classes = Tensor::arange(32, (Kind::Int64, Device::Cpu)).remainder(10);
    [(numbers * 0.7).sin().view([32, WIDTH]), classes]
}

fn mlp(path: &Path<'_>) -> Sequential {
    nn::seq()
        .add(nn::linear(path / "hidden", WIDTH, WIDTH, Default::default()))
        .add_fn(Tensor::tanh)
        .add(nn::linear(path / "output", WIDTH, 10, Default::default()))
}
