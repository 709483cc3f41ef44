//! Synchronous and asynchronous updates, after bobondemon's "Distributed Data Parallel and Its
//! Pytorch Example".
//!
//! ```text
//! cargo launch -n 4 async-update -- sync-allreduce      the mean of all gradients, as DDP takes it
//! cargo launch -n 4 async-update -- ring                the same, chunk by chunk around a ring
//! cargo launch -n 5 async-update -- async-ps            a server and four workers that wait for nobody
//! cargo run -rq -p async-update -- ring show            where the chunks are after each iteration
//! cargo launch -n 4 async-update -- cost                what a message costs, and so an update
//! cargo run --release -p async-update -- hogwild        threads, without a lock
//! cargo run --release -p async-update -- trace case1    the article's first asynchronous story
//! cargo run --release -p async-update -- quadratic      what theory says of its guesses
//! ```

mod args;
mod batches;
mod command;
mod events;
mod exhibits;
mod link;
mod methods;
mod model;
mod pace;
mod ring;
mod server;

use anyhow::{Context, Result, bail, ensure};
use args::{HogwildArgs, LocalSgdArgs, ServerArgs, TrainArgs};
use clap::Parser;
use command::{Args, Command, RingArgs};
use events::{End, Log, Outcome, Update};
use link::Link;
use methods::{
    AsyncPs, Easgd, Hogwild, LocalSgd, Method, Ring, SharedModel, SyncAllReduce, SyncPs,
};
use pace::Pace;
use report::exit_code;
use server::{Gate, Rule, Service, Shards};
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;
use std::time::Instant;
use tch::{Device, Kind, Tensor};
use tch_parallel::data::{Dataset, Mnist, Shard};
use tch_parallel::distributed::{Env, ProcessGroup, Store, init_process_group};

fn main() -> ExitCode {
    exit_code(run(&Args::parse().command))
}

fn run(command: &Command) -> Result<()> {
    match command {
        Command::SyncAllreduce(args) => synchronous("sync-allreduce", args, |group, steps| {
            Ok((Box::new(SyncAllReduce { group, steps, lr: args.lr }), steps))
        }),
        Command::SyncPs(args) => synchronous("sync-ps", args, |group, steps| {
            let link = Link::between_ranks(group)?;
            Ok((Box::new(SyncPs { link, steps, lr: args.lr }), steps))
        }),
        Command::Ring(RingArgs { exhibit: None, train: args }) => {
            synchronous("ring", args, |group, steps| {
                let link = Link::between_ranks(group)?;
                Ok((Box::new(Ring { link, steps, lr: args.lr }), steps))
            })
        }
        Command::LocalSgd(args) => local_sgd("local-sgd", args, 0),
        Command::PostLocal(args) => local_sgd("post-local", &args.local, args.start),
        Command::AsyncPs(args) => {
            let lr = args.server.train.lr;
            let rule = Rule::Gradient { lr, staleness_aware: args.staleness_aware };
            let gate = args.sync_every.map_or(Gate::Free, Gate::Every);
            asynchronous(Service { name: "async-ps", rule, gate }, &args.server, |shards| {
                Box::new(AsyncPs::new(shards, lr, args.n_fetch, args.n_push))
            })
        }
        Command::Ssp(args) => {
            let lr = args.server.train.lr;
            let rule = Rule::Gradient { lr, staleness_aware: false };
            let gate = Gate::Stale(args.staleness as usize);
            asynchronous(Service { name: "ssp", rule, gate }, &args.server, |shards| {
                Box::new(AsyncPs::new(shards, lr, 1, 1))
            })
        }
        Command::Easgd(args) => {
            let (lr, tau) = (args.server.train.lr, args.tau);
            let rule = Rule::Elastic { alpha: args.alpha()? };
            let service = Service { name: "easgd", rule, gate: Gate::Free };
            asynchronous(service, &args.server, |shards| {
                Box::new(Easgd { shards, lr, tau, batches: 0 })
            })
        }
        Command::Hogwild(args) => hogwild(args),
        Command::Ring(RingArgs { exhibit: Some(exhibit), .. }) => exhibit.run(),
        Command::Exhibit(exhibit) => exhibit.run(),
    }
}

/// One loop for all methods: what differs is where θ comes from, and where the gradient goes.
// ANCHOR: loop
fn train(
    args: &TrainArgs,
    train_set: &Arc<Mnist>,
    worker: Shard,
    theta: &mut Tensor,
    method: &mut dyn Method,
    log: &mut Log,
) -> Result<()> {
    let loader = args.loader(train_set, worker)?;
    let mut batches = batches::forever(&loader);
    let pace = Pace::new(args.step_time(), &args.straggle, log.rank);
    while let number @ 1.. = method.next_batches(theta)? {
        for batch in batches.by_ref().take(number) {
            let (images, labels) = batch?;
            let begun = Instant::now();
            let (loss, gradient) = model::loss_and_gradient(theta, &images, &labels)?;
            ensure!(loss.is_finite(), "the loss is {loss}; try a smaller --lr than {}", args.lr);
            pace.keep(begun);
            method.after_batch(theta, gradient)?;
            log.step(loss, theta)?;
        }
    }
    Ok(method.end(theta)?)
}
// ANCHOR_END: loop

/// Trains with a method in which all ranks are workers, and all hold the same θ in the end.
/// `method` also returns how many updates the steps of all ranks make.
fn synchronous(
    name: &str,
    args: &TrainArgs,
    method: impl FnOnce(ProcessGroup, usize) -> Result<(Box<dyn Method>, usize)>,
) -> Result<()> {
    let (train_set, test_set) = args.data()?;
    let group = init_process_group(args.meeting.process_group())?;
    let (rank, ranks) = (group.rank(), group.world_size());
    pace::check(&args.straggle, 0..ranks)?;

    let mut theta = model::initial_parameters(args.seed);
    group.broadcast(&mut theta, 0)?;
    let steps = args.batches(train_set.len()).div_ceil(ranks);
    let (mut method, updates) = method(group.clone(), steps)?;
    let mut log = Log::create(args.metrics.as_deref(), rank, ranks)?;
    let begun = Instant::now();
    train(args, &train_set, Shard::from(&group), &mut theta, method.as_mut(), &mut log)?;
    let seconds = begun.elapsed().as_secs_f64();
    let traffic = method.traffic();
    log.event("end", &End { traffic })?;
    group.barrier()?;
    if rank == 0 {
        let (loss, accuracy) = model::evaluate(&theta, &test_set)?;
        let (name, batches, workers) = (name.to_owned(), steps * ranks, ranks);
        log.outcome(&Outcome { name, workers, updates, batches, seconds, loss, accuracy })?;
        if let Some(traffic) = traffic {
            println!("{}", traffic.per_step(rank, steps));
        }
    }
    Ok(())
}

/// Trains with local SGD, after `start` steps that all ranks make together.
fn local_sgd(name: &str, args: &LocalSgdArgs, start: usize) -> Result<()> {
    synchronous(name, &args.train, |group, steps| {
        let first = start.min(steps);
        let updates = first + (steps - first) * group.world_size();
        let together = SyncAllReduce { group, steps, lr: args.train.lr };
        Ok((Box::new(LocalSgd { together, start, period: args.period, since_mean: 0 }), updates))
    })
}

/// Trains with a method in which servers keep θ: the first ranks are servers, with a shard of θ each,
/// all others are workers. Nobody waits for a worker: it may be slow, come late, or be killed.
fn asynchronous(
    service: Service<'_>,
    args: &ServerArgs,
    method: impl FnOnce(Shards) -> Box<dyn Method>,
) -> Result<()> {
    let (place, args) = (args.place()?, &args.train);
    pace::check(&args.straggle, place.workers())?;
    if place.rank < place.servers {
        return server::serve(service, place, args);
    }
    // What can go wrong with these goes wrong before anybody counts on this worker.
    let (train_set, _) = args.data()?;
    let mut log = Log::create(args.metrics.as_deref(), place.rank, place.ranks)?;
    let options = args.meeting.process_group();
    let store = Store::from_env(options.timeout)?;
    let mut method = method(Shards::connect(&store, place.rank, place.servers, options)?);
    let mut theta = Tensor::zeros([model::PARAMETERS as i64], (Kind::Float, Device::Cpu));
    let worker = Shard::new(place.rank - place.servers, place.workers().len())?;
    train(args, &train_set, worker, &mut theta, method.as_mut(), &mut log)?;
    Ok(log.event("end", &End { traffic: method.traffic() })?)
}

/// Trains with threads of this process, which is the only one.
fn hogwild(args: &HogwildArgs) -> Result<()> {
    let HogwildArgs { threads, train: args } = args;
    let threads = usize::from(*threads);
    if let Some(Env { world_size: ranks @ 2.., .. }) = Env::read()? {
        bail!(
            "hogwild is one process with --threads, and {ranks} ranks were started; start it without a launcher"
        );
    }
    pace::check(&args.straggle, 0..threads)?;

    let (train_set, test_set) = args.data()?;
    let batches = args.batches(train_set.len());
    let shared = SharedModel::new(model::initial_parameters(args.seed), batches)
        .context("θ has another handle or view")?;
    let begun = Instant::now();
    let work = |thread| -> Result<(Log, Vec<Update>)> {
        // One for each worker, as launchers have it; libtorch asks every thread by itself.
        tch::set_num_threads(1);
        let mut method = Hogwild::new(&shared, args.lr, thread);
        let mut log = Log::create(args.metrics.as_deref(), thread, threads)?;
        let mut theta = Tensor::new();
        let worker = Shard::new(thread, threads)?;
        train(args, &train_set, worker, &mut theta, &mut method, &mut log)?;
        Ok((log, method.into_updates()))
    };
    // The others need not go on for a training that has failed.
    let work = |thread| work(thread).inspect_err(|_| shared.stop());
    let ended = thread::scope(|scope| {
        let start = |thread| scope.spawn(move || work(thread));
        let workers: Vec<_> = (0..threads).map(start).collect();
        let ended = workers.into_iter().enumerate().map(|(thread, worker)| {
            let result = worker.join().unwrap_or_else(|_| bail!("it panicked"));
            result.with_context(|| format!("thread {thread} failed"))
        });
        ended.collect::<Result<Vec<_>>>()
    })?;
    let seconds = begun.elapsed().as_secs_f64();

    let (loss, accuracy) = model::evaluate(&shared.into_theta(), &test_set)?;
    let name = "hogwild".to_owned();
    let (workers, updates) = (threads, batches);
    let outcome = Outcome { name, workers, updates, batches, seconds, loss, accuracy };
    let mut staleness = Vec::new();
    for (thread, (mut log, updates)) in ended.into_iter().enumerate() {
        for update in &updates {
            log.event("update", update)?;
            staleness.push(update.staleness);
        }
        if thread == 0 {
            log.outcome(&outcome)?;
        }
        log.event("end", &End { traffic: None })?;
    }
    let mean = staleness.iter().sum::<usize>() as f64 / staleness.len() as f64;
    let most = staleness.iter().max().copied().unwrap_or_default();
    println!("staleness: {mean:.2} in the mean, at most {most}");
    Ok(())
}
