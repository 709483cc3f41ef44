//! Times of this machine, and what the model says of them.

use crate::cluster::{Algorithm, Cluster, Link};
use anyhow::{Result, ensure};
use exhibit_kit::{template, weights};
use minijinja::context;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
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

/// Measure a step on this machine, and compare it with the model.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  launch -n 4 scaling measure")]
pub struct Args {
    /// Bandwidth of each host's network, in Gb/s, if the ranks are on several hosts
    #[arg(long)]
    gigabits: Option<f64>,
    /// One-way delay of this network, in ms
    #[arg(long, default_value_t = 0.0, requires = "gigabits")]
    milliseconds: f64,
}

/// The cost of an operation to the ranks that take part in it.
struct Took {
    /// Until the slowest is done.
    seconds: f64,
    /// Of a processor, for each rank: with threads and the kernel's copies it can be more than `seconds`.
    processor: f64,
}

/// Measures what the model needs, and compares its all-reduce and its step with measured ones.
pub fn run(args: &Args) -> Result<()> {
    let options = ProcessGroupOptions { device: DeviceChoice::Cpu, ..Default::default() };
    let group = init_process_group(options)?;
    let (ranks, ranks_per_host) = (group.world_size(), group.local_world_size());
    ensure!(
        ranks > 1,
        "a single rank has nobody to exchange with; start more: `cargo launch -n 2 scaling -- measure`"
    );
    ensure!(
        ranks == ranks_per_host || args.gigabits.is_some(),
        "the ranks are on several hosts; say with --gigabits and --milliseconds what the network \
         between them can do"
    );
    let vs = VarStore::new(group.device());
    let mlp = mlp(&vs);
    let parameters = i64::try_from(weights::parameters(&vs))?;
    let bytes = 4.0 * parameters as f64;
    // Two ranks, while the others leave the cores to them.
    let two = group.new_group(&[0, 1])?;
    let pair = if ranks == 2 { Some(&group) } else { two.as_ref() };
    let pair_least = exchange(&group, pair, 1)?;
    let pair_all = exchange(&group, pair, parameters)?;
    // All ranks at once from here on, because those that share cores are slower.
    let [least, exchanged] = [1, parameters].map(|numbers| exchange(&group, Some(&group), numbers));
    let (least, exchanged) = (least?.seconds, exchanged?.seconds);
    // When a step begins, the caches hold the previous step's gradients, not the parameters.
    let mut gradients = group.allocate_tensor(&[parameters], Kind::Float)?.f_zero_()?;
    let exchanges = || Ok(group.all_reduce(&mut gradients, ReduceOp::Sum)?);
    let compute = of_all(&group, ranks, exchanges, || Ok(loss(&mlp).f_backward()?))?.seconds;
    // As the Reducer divides gradients by the number of ranks.
    let divides = || Ok(gradients.f_mul_scalar_(0.5).map(drop)?);
    let divide = of_all(&group, ranks, || Ok(()), divides)?.seconds;
    // The model counts no copies.
    let options = DdpOptions { gradient_as_bucket_view: true, ..Default::default() };
    let ddp = DistributedDataParallel::with_options(mlp, &vs, &group, options)?;
    let stepped = of_all(&group, ranks, || Ok(()), || Ok(ddp.backward(&loss(&ddp))?))?.seconds;
    if group.rank() != 0 {
        return Ok(());
    }
    let cores = available_parallelism()?.get();
    // How long the cores are busy if every rank of a host moves as many bytes: it counts if cores are too few.
    let busy = (pair_all.processor - pair_least.processor) * ranks_per_host as f64 / cores as f64;
    let seconds = (pair_all.seconds - pair_least.seconds).max(busy).max(f64::EPSILON);
    let (algorithm, messages) = match group.transport() {
        Transport::SharedMemory => (Algorithm::Memory, 2),
        _ => (Algorithm::Ring, 2 * (ranks - 1)),
    };
    let inside = Link { latency: least / messages as f64, bandwidth: bytes / seconds };
    let latency = 1e-3 * args.milliseconds;
    let network = |gigabits: f64| Link { latency, bandwidth: 1e9 / 8.0 * gigabits };
    let between = args.gigabits.map_or(inside, network);
    // Without a second rank on the host, the pair has measured the network.
    let inside = if ranks_per_host == 1 { between } else { inside };
    let cluster = Cluster { ranks_per_host, inside, between, algorithm };
    let exchange = cluster.all_reduce(ranks, bytes);
    // The cores that exchange are those that compute, so nothing is hidden.
    let rows = [
        context! { what => "all-reduce", model => exchange, measured => exchanged },
        context! { what => "step", model => compute + divide + exchange, measured => stepped },
    ];
    let holes = context! {
        ranks,
        ranks_per_host,
        cores,
        bytes,
        compute,
        divide,
        transport => group.transport().to_string(),
        least,
        pair => pair_all.seconds,
        processor => pair_all.processor,
        gigabits => args.gigabits,
        milliseconds => args.milliseconds,
        rows,
    };
    Ok(template::print(&template::environment()?, include_str!("measure.jinja"), holes)?)
}

fn mlp(vs: &VarStore) -> SequentialT {
    SIZES.windows(2).enumerate().fold(seq_t(), |layers, (number, size)| {
        let layer = linear(vs.root() / number, size[0], size[1], LinearOptions::default());
        layers.add(layer).add_fn(|x| x.relu())
    })
}

fn loss(model: &impl ModuleT) -> Tensor {
    let images = Tensor::rand([SAMPLES, SIZES[0]], (Kind::Float, tch::Device::Cpu));
    model.forward_t(&images, true).square().mean(Kind::Float)
}

/// An all-reduce of `numbers` numbers, stored like DDP's buckets, by the ranks that have a `part` of the group.
fn exchange(group: &ProcessGroup, part: Option<&ProcessGroup>, numbers: i64) -> Result<Took> {
    let Some(part) = part else { return of_all(group, 2, || Ok(()), || Ok(())) };
    let mut tensor = part.allocate_tensor(&[numbers], Kind::Float)?.f_zero_()?;
    let run = || Ok(part.all_reduce(&mut tensor, ReduceOp::Sum)?);
    of_all(group, part.world_size(), || Ok(()), run)
}

/// The median time of `run`, which all ranks begin together after `before`; `active` of them have work to do.
fn of_all(
    group: &ProcessGroup,
    active: usize,
    mut before: impl FnMut() -> Result<()>,
    mut run: impl FnMut() -> Result<()>,
) -> Result<Took> {
    let (mut times, mut processor) = (Vec::new(), 0.0);
    for _ in 0..REPETITIONS {
        before()?;
        group.barrier()?;
        let (used, begun) = (processor_seconds()?, Instant::now());
        run()?;
        times.push(begun.elapsed().as_secs_f64());
        processor += processor_seconds()? - used;
    }
    let (mut slowest, mut processor) = (Tensor::from_slice(&times), Tensor::from(processor));
    group.all_reduce(&mut slowest, ReduceOp::Max)?;
    group.all_reduce(&mut processor, ReduceOp::Sum)?;
    let processor = f64::try_from(processor)? / (active * REPETITIONS) as f64;
    Ok(Took { seconds: f64::try_from(slowest.median())?, processor })
}

/// Of all threads of this rank.
fn processor_seconds() -> Result<f64> {
    let usage = getrusage(UsageWho::RUSAGE_SELF)?;
    Ok(1e-6 * (usage.user_time() + usage.system_time()).num_microseconds() as f64)
}
