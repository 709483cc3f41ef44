//! Times of this machine, and what the model says of them.

use crate::network::{Algorithm, Link, Network};
use anyhow::{Result, ensure};
use exhibit_kit::template;
use minijinja::context;
use minijinja::value::Serde;
use serde::Serialize;
use std::thread::available_parallelism;
use std::time::Instant;
use tch::nn::{ModuleT, SequentialT, VarStore, seq_t};
use tch::{Kind, Tensor};
use tch_parallel::distributed::{
    DdpOptions, DeviceChoice, DistributedDataParallel, ProcessGroup, ProcessGroupOptions, ReduceOp,
    Transport, init_process_group,
};
use tch_parallel::nn::{LinearOptions, linear};

const SIZES: [i64; 4] = [784, 1024, 1024, 10];
const PARAMETERS: i64 = 785 * 1024 + 1025 * 1024 + 1025 * 10;
const SAMPLES: i64 = 64;
/// Of each kind.
const REPETITIONS: usize = 51;

#[derive(Serialize)]
struct Row {
    what: &'static str,
    model: f64,
    measured: f64,
}

/// Measures what the model needs with as many ranks as there are cores, and compares it with all ranks.
pub fn run() -> Result<()> {
    let options = ProcessGroupOptions { device: DeviceChoice::Cpu, ..Default::default() };
    let group = init_process_group(options)?;
    let ranks = group.world_size();
    ensure!(
        ranks > 1,
        "a world of 1 has nobody to exchange with; start at least 2 ranks, as with `cargo launch -n 2 scaling -- measure`"
    );
    let bytes = 4.0 * PARAMETERS as f64;
    let vs = VarStore::new(group.device());
    let mlp = mlp(&vs);
    // All that take no part in a measurement wait meanwhile, and take no core.
    group.barrier()?;
    let link = match group.new_group(&[0, 1])? {
        Some(pair) => {
            // A latency each for the sum and for handing it out.
            let [least, all] = [exchange(&pair, 1)?, exchange(&pair, PARAMETERS)?];
            Link { latency: least / 2.0, bandwidth: bytes / (all - least).max(f64::EPSILON) }
        }
        None => Link { latency: 0.0, bandwidth: 0.0 },
    };
    group.barrier()?;
    // At once on all cores, which may have to share caches.
    let cores = available_parallelism()?.get();
    let computing = ranks.min(cores);
    let compute = match group.new_group(&(0..computing).collect::<Vec<_>>())? {
        Some(group) => of_all(&group, || Ok(loss(&mlp).f_backward()?))?,
        None => 0.0,
    };
    group.barrier()?;
    let exchanged = exchange(&group, PARAMETERS)?;
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
    let network = Network { ranks_per_host: ranks, inside: link, between: link, algorithm };
    let exchange = network.all_reduce(ranks, bytes);
    // The cores that exchange are those that compute, so nothing is hidden unless some are idle.
    let crowd = (ranks as f64 / cores as f64).max(1.0);
    let rows = [
        Row { what: "all-reduce", model: crowd * exchange, measured: exchanged },
        Row { what: "step", model: crowd * (compute + exchange), measured: stepped },
    ];
    let holes = context! {
        ranks,
        cores,
        computing,
        bytes,
        compute,
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

/// An all-reduce of so many numbers, which lie where DDP's buckets do.
fn exchange(group: &ProcessGroup, numbers: i64) -> Result<f64> {
    let mut tensor = group.allocate_tensor(&[numbers], Kind::Float)?.f_zero_()?;
    of_all(group, || Ok(group.all_reduce(&mut tensor, ReduceOp::Sum)?))
}

/// The median time of what all ranks do together, which is that of the slowest.
fn of_all(group: &ProcessGroup, mut run: impl FnMut() -> Result<()>) -> Result<f64> {
    let time = |_| {
        group.barrier()?;
        seconds(&mut run)
    };
    let times = (0..REPETITIONS).map(time).collect::<Result<Vec<_>>>()?;
    let mut slowest = Tensor::from_slice(&times);
    group.all_reduce(&mut slowest, ReduceOp::Max)?;
    Ok(f64::try_from(slowest.median())?)
}

fn seconds(run: impl FnOnce() -> Result<()>) -> Result<f64> {
    let begun = Instant::now();
    run()?;
    Ok(begun.elapsed().as_secs_f64())
}
