//! Times of this machine, and what the model says of them.

use crate::cluster::{Algorithm, Cluster, Link};
use anyhow::{Context, Result, ensure};
use exhibit_kit::{template, weights};
use minijinja::{context, value::Serde};
use serde::Serialize;
use std::{thread::available_parallelism, time::Instant};
use tch::nn::{ModuleT, SequentialT, VarStore, seq_t};
use tch::{Kind, Tensor};
use tch_parallel::distributed::{DdpOptions, DeviceChoice, DistributedDataParallel, ProcessGroup};
use tch_parallel::distributed::{ProcessGroupOptions, ReduceOp, Transport, init_process_group};
use tch_parallel::nn::{LinearOptions, linear};

const SIZES: [i64; 4] = [784, 1024, 1024, 10];
const SAMPLES: i64 = 64;
/// How often each thing is timed.
const REPETITIONS: usize = 51;

#[derive(Serialize)]
struct Row {
    what: &'static str,
    model: f64,
    measured: f64,
}

/// Measures what the model needs, on all ranks at once because ranks that share cores are slower, and compares the
/// model's all-reduce and step with measured ones.
pub fn run() -> Result<()> {
    let options = ProcessGroupOptions { device: DeviceChoice::Cpu, ..Default::default() };
    let group = init_process_group(options)?;
    let ranks = group.world_size();
    ensure!(
        ranks > 1 && ranks.is_multiple_of(2),
        "a world of {ranks} has a rank without a neighbour to exchange with; start an even number of ranks, as with \
         `cargo launch -n 2 scaling -- measure`"
    );
    let vs = VarStore::new(group.device());
    let mlp = mlp(&vs);
    let parameters = i64::try_from(weights::parameters(&vs))?;
    let bytes = 4.0 * parameters as f64;
    let pairs = (0..ranks).step_by(2).map(|first| group.new_group(&[first, first + 1]));
    let pair = pairs.collect::<tch_parallel::Result<Vec<_>>>()?.into_iter().flatten().next();
    let pair = pair.context("each rank is in a pair")?;
    // A latency each for the sum and for handing it out.
    let [least, all] = [exchange(&group, &pair, 1)?, exchange(&group, &pair, parameters)?];
    let link = Link { latency: least / 2.0, bandwidth: bytes / (all - least).max(f64::EPSILON) };
    let compute = of_all(&group, || Ok(loss(&mlp).f_backward()?))?;
    // As the Reducer divides gradients by the number of ranks.
    let mut gradients = Tensor::zeros(parameters, (Kind::Float, tch::Device::Cpu));
    let divide = of_all(&group, || Ok(gradients.f_mul_scalar_(0.5).map(drop)?))?;
    let exchanged = exchange(&group, &group, parameters)?;
    // The model counts no copies.
    let options = DdpOptions { gradient_as_bucket_view: true, ..Default::default() };
    let ddp = DistributedDataParallel::with_options(mlp, &vs, &group, options)?;
    let stepped = of_all(&group, || Ok(ddp.backward(&loss(&ddp))?))?;
    if group.rank() != 0 {
        return Ok(());
    }
    let algorithm = match group.transport() {
        Transport::SharedMemory => Algorithm::Memory,
        _ => Algorithm::Ring,
    };
    let cluster = Cluster { ranks_per_host: ranks, inside: link, between: link, algorithm };
    let exchange = cluster.all_reduce(ranks, bytes);
    // The cores that exchange are those that compute, so nothing is hidden.
    let rows = [
        Row { what: "all-reduce", model: exchange, measured: exchanged },
        Row { what: "step", model: compute + divide + exchange, measured: stepped },
    ];
    let holes = context! {
        ranks,
        cores => available_parallelism()?.get(),
        bytes,
        compute,
        divide,
        transport => group.transport().to_string(),
        latency => link.latency,
        gigabytes_per_second => 1e-9 * link.bandwidth,
        rows => Serde(&rows),
    };
    Ok(template::print(&template::environment()?, include_str!("measure.jinja"), holes)?)
}

fn mlp(vs: &VarStore) -> SequentialT {
    let mut layers = seq_t();
    for (number, size) in SIZES.windows(2).enumerate() {
        layers = layers.add(linear(vs.root() / number, size[0], size[1], LinearOptions::default()));
        layers = layers.add_fn(|x| x.relu());
    }
    layers
}

fn loss(model: &impl ModuleT) -> Tensor {
    let images = Tensor::rand([SAMPLES, SIZES[0]], (Kind::Float, tch::Device::Cpu));
    model.forward_t(&images, true).square().mean(Kind::Float)
}

/// An all-reduce of `numbers` numbers, stored like DDP's buckets, within each rank's `part` of the group.
fn exchange(group: &ProcessGroup, part: &ProcessGroup, numbers: i64) -> Result<f64> {
    let mut tensor = part.allocate_tensor(&[numbers], Kind::Float)?.f_zero_()?;
    of_all(group, || Ok(part.all_reduce(&mut tensor, ReduceOp::Sum)?))
}

/// The median time of what all ranks do together, which is that of the slowest.
fn of_all(group: &ProcessGroup, mut run: impl FnMut() -> Result<()>) -> Result<f64> {
    let time = |_| {
        group.barrier()?;
        let begun = Instant::now();
        run()?;
        Ok(begun.elapsed().as_secs_f64())
    };
    let times = (0..REPETITIONS).map(time).collect::<Result<Vec<_>>>()?;
    let mut slowest = Tensor::from_slice(&times);
    group.all_reduce(&mut slowest, ReduceOp::Max)?;
    Ok(f64::try_from(slowest.median())?)
}
