//! Hogwild!: threads of one process on shared parameters, without a lock (Niu 2011).

use super::Method;
use crate::events::{Log, Outcome, Update};
use crate::{args::TrainArgs, model, training::train};
use anyhow::{Context, bail};
use rayon::ThreadPoolBuilder;
use report::{Here, Originals, println, say_unused_gpus, unix_seconds};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Instant;
use tch::Tensor;
use tch_parallel::{Result, data::Dataset, data::Shard, distributed::Env, hogwild::AtomicTensor};

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  async-update hogwild --threads 4 --lr 0.05 --epochs 5")]
pub struct HogwildArgs {
    /// Number of threads; --straggle counts them from 0, like ranks.
    // A machine cannot run any number of threads.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: u16,
    #[command(flatten)]
    pub train: TrainArgs,
}

/// Flags of PyTorch's example mnist_hogwild that have another name here.
pub const HOGWILD: Originals<'_> = &[
    ("--num-processes", Here::Flag("--threads")),
    // It uses a GPU only where there is one.
    ("--cuda", Here::Flag("--device=auto")),
    ("--mps", Here::Instead("leave it out; a device is the CPU or a CUDA GPU")),
    ("--momentum", Here::Instead("leave it out; threads take plain SGD steps")),
    ("--test-batch-size", Here::Instead("leave it out; it is always 1000")),
    ("--log-interval", Here::Instead("type --metrics DIR for the loss of every step")),
    ("--save-model", Here::Instead("leave it out; the model is not saved")),
    ("--dry-run", Here::Instead("type --epochs 1; there is no shorter run")),
];

/// Trains with threads of this process, which is the only one.
pub fn hogwild(args: &HogwildArgs) -> anyhow::Result<()> {
    let HogwildArgs { threads, train: args } = args;
    let threads = usize::from(*threads);
    if let Some(Env { world_size: ranks @ 2.., .. }) = Env::read()? {
        bail!(
            "hogwild is one process with --threads, and {ranks} ranks were started; start it without a launcher"
        );
    }
    args.check_stragglers(0..threads)?;
    say_unused_gpus(args.device);
    let devices = (0..threads).map(|it| args.device.of_worker(it)).collect::<Result<Vec<_>>>()?;

    let (train_set, test_set) = args.data()?;
    let batches = args.batches(train_set.len());
    let theta = AtomicTensor::new(model::initial_parameters(args.seed))
        .context("θ has another handle or view")?;
    let shared = SharedModel { theta, version: 0.into(), batches: batches.into() };
    let work = |thread| -> anyhow::Result<(Log, Vec<Update>)> {
        // One for each worker, as launchers have it; libtorch asks every thread by itself.
        tch::set_num_threads(1);
        let worker = Shard::new(thread, threads)?;
        let mut log = Log::create(args.metrics.as_deref(), worker)?;
        let mut method = Hogwild { shared: &shared, lr: args.lr, thread, read: 0, updates: vec![] };
        let (device, mut theta) = (devices[thread], Tensor::new());
        train(args, &train_set, worker, device, &mut theta, &mut method, &mut log)?;
        Ok((log, method.updates))
    };
    let pool = ThreadPoolBuilder::new().num_threads(threads).build()?;
    let begun = Instant::now();
    let ended = pool.broadcast(|worker| {
        let failed = format!("thread {} failed", worker.index());
        // The others need not go on for a training that has failed.
        work(worker.index()).inspect_err(|_| shared.batches.store(0, Relaxed)).context(failed)
    });
    let ended = ended.into_iter().collect::<anyhow::Result<Vec<_>>>()?;
    let seconds = begun.elapsed().as_secs_f64();

    let (loss, accuracy) = model::evaluate(&shared.theta.into_tensor(), &test_set)?;
    let (name, workers, updates) = ("hogwild".to_owned(), threads, batches);
    let outcome = Outcome { name, workers, updates, batches, seconds, loss, accuracy };
    let mut staleness = Vec::new();
    for (thread, (mut log, updates)) in ended.into_iter().enumerate() {
        for update in &updates {
            log.metrics.log("update", update)?;
            staleness.push(update.staleness);
        }
        if thread == 0 {
            log.outcome(&outcome)?;
        }
        log.end()?;
    }
    let mean = staleness.iter().sum::<usize>() as f64 / staleness.len() as f64;
    let most = staleness.iter().max().copied().unwrap_or_default();
    println!("staleness: mean {mean:.2}, at most {most}");
    Ok(())
}

struct SharedModel {
    theta: AtomicTensor,
    /// How many updates have been made to `theta`; those at work are not counted yet.
    version: AtomicUsize,
    /// How many batches are left; threads take them one by one.
    batches: AtomicUsize,
}

/// Each thread copies θ, computes a gradient there, and subtracts it from what θ has become
/// meanwhile, element by element, while the others do the same.
struct Hogwild<'a> {
    shared: &'a SharedModel,
    lr: f64,
    thread: usize,
    /// The version that this thread has read last; of the elements some may be newer.
    read: usize,
    /// What this thread has done, kept in memory: writing it down would make others stale. Staleness
    /// counts what others had finished since this thread read θ.
    updates: Vec<Update>,
}

// ANCHOR: hogwild
impl Method for Hogwild<'_> {
    fn next_batches(&mut self, theta: &mut Tensor, _left: usize) -> Result<usize> {
        let take = |left: usize| left.checked_sub(1);
        if self.shared.batches.fetch_update(Relaxed, Relaxed, take).is_err() {
            return Ok(0);
        }
        self.read = self.shared.version.load(Relaxed);
        *theta = self.shared.theta.load();
        Ok(1)
    }

    fn after_batch(&mut self, _theta: &mut Tensor, gradient: Tensor) -> Result<()> {
        self.shared.theta.fetch_sub_scaled(&gradient, self.lr as f32);
        let version = self.shared.version.fetch_add(1, Relaxed);
        let (worker, clock, staleness) = (self.thread, self.updates.len(), version - self.read);
        self.updates.push(Update { worker, clock, staleness, version, at: unix_seconds() });
        Ok(())
    }
}
// ANCHOR_END: hogwild
