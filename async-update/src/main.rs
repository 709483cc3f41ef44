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
mod asynchronous;
mod batches;
mod compare;
mod cost;
mod events;
mod link;
mod methods;
mod model;
mod pace;
mod quadratic;
mod ring;
mod server;
mod trace;

use anyhow::{Context, Result, bail, ensure};
use args::{
    Args, Command, HogwildArgs, LocalSgdArgs, PostLocalArgs, RingArgs, RingCommand, TrainArgs,
};
use asynchronous::{Service, asynchronous};
use clap::Parser;
use events::{Log, Outcome, Update};
use link::Link;
use methods::{
    AsyncPs, Easgd, Hogwild, LocalSgd, Method, PostLocal, Ring, SharedModel, Steps, SyncAllReduce,
    SyncPs, ssp, ssp_gate,
};
use pace::Pace;
use report::exit_code;
use server::{Gate, Rule};
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;
use std::time::Instant;
use tch::Tensor;
use tch_parallel::data::{Dataset, Mnist, Shard};
use tch_parallel::distributed::{Env, ProcessGroup, init_process_group};

fn main() -> ExitCode {
    exit_code(run(&Args::parse().command))
}

fn run(command: &Command) -> Result<()> {
    match command {
        Command::Compare(args) => compare::compare(args),
        Command::SyncAllreduce(args) => synchronous("sync-allreduce", args, |group, steps| {
            let updates = steps.number();
            Ok((Box::new(SyncAllReduce { group, steps, lr: args.lr }), updates))
        }),
        Command::SyncPs(args) => synchronous("sync-ps", args, |group, steps| {
            let updates = steps.number();
            Ok((Box::new(SyncPs { link: several(group)?, steps, lr: args.lr }), updates))
        }),
        Command::Ring(RingArgs { look: Some(RingCommand::Show(args)), .. }) => {
            ring::show::run(args)
        }
        Command::Ring(RingArgs { look: Some(RingCommand::Check(args)), .. }) => {
            ring::check::run(args)
        }
        Command::Ring(RingArgs { look: None, train: args }) => {
            synchronous("ring", args, |group, steps| {
                let updates = steps.number();
                Ok((Box::new(Ring { link: several(group)?, steps, lr: args.lr }), updates))
            })
        }
        Command::Cost(args) => cost::run(args),
        Command::LocalSgd(args) => synchronous("local-sgd", &args.train, |group, steps| {
            let updates = steps.number() * group.world_size();
            Ok((Box::new(local_sgd(args, group, steps)), updates))
        }),
        Command::PostLocal(PostLocalArgs { start, local: args }) => {
            synchronous("post-local", &args.train, |group, steps| {
                let (first, rest) = steps.split(*start);
                let updates = first.number() + rest.number() * group.world_size();
                let together =
                    SyncAllReduce { group: group.clone(), steps: first, lr: args.train.lr };
                let local = local_sgd(args, group, rest);
                Ok((Box::new(PostLocal { together, local, has_parted: false }), updates))
            })
        }
        Command::AsyncPs(args) => {
            let (train, servers) = (&args.server.train, args.server.servers);
            let rule = Rule::Gradient { lr: train.lr, staleness_aware: args.staleness_aware };
            let gate = args.sync_every.map_or(Gate::Free, Gate::Every);
            asynchronous(Service { name: "async-ps", servers, rule, gate }, train, |shards| {
                Box::new(AsyncPs::new(shards, train.lr, args.n_fetch, args.n_push))
            })
        }
        Command::Ssp(args) => {
            let (train, servers) = (&args.server.train, args.server.servers);
            let rule = Rule::Gradient { lr: train.lr, staleness_aware: false };
            let gate = ssp_gate(args.staleness as usize);
            asynchronous(Service { name: "ssp", servers, rule, gate }, train, |shards| {
                Box::new(ssp(shards, train.lr))
            })
        }
        Command::Easgd(args) => {
            let (train, servers) = (&args.server.train, args.server.servers);
            let (lr, tau) = (train.lr, args.tau);
            let rule = Rule::Elastic { alpha: args.alpha()? };
            let service = Service { name: "easgd", servers, rule, gate: Gate::Free };
            asynchronous(service, train, |shards| {
                Box::new(Easgd { shards, lr, tau, granted: 0, batches: None })
            })
        }
        Command::Hogwild(args) => hogwild(args),
        Command::Trace { story } => trace::run(*story),
        Command::Quadratic(args) => quadratic::run(args),
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
    let pace = Pace::new(args.step_time(), &args.straggle, log.rank());
    for batch in batches::forever(&loader) {
        if method.before_batch(theta)?.is_break() {
            break;
        }
        let (images, labels) = batch?;
        let begun = Instant::now();
        let (loss, gradient) = model::loss_and_gradient(theta, &images, &labels)?;
        ensure!(loss.is_finite(), "the loss is {loss}; try a smaller --lr than {}", args.lr);
        pace.keep(begun);
        method.after_batch(theta, gradient)?;
        log.step(loss, theta)?;
    }
    Ok(())
}
// ANCHOR_END: loop

/// Trains with a method in which all ranks are workers, and all hold the same θ in the end.
/// `method` says as well how many updates the steps of all ranks make.
fn synchronous(
    name: &str,
    args: &TrainArgs,
    method: impl FnOnce(ProcessGroup, Steps) -> Result<(Box<dyn Method>, usize)>,
) -> Result<()> {
    let (train_set, test_set) = args.data()?;
    let group = init_process_group(args.meeting.process_group())?;
    let (rank, ranks) = (group.rank(), group.world_size());
    pace::check(&args.straggle, 0..ranks)?;

    let mut theta = model::initial_parameters(args.seed);
    group.broadcast(&mut theta, 0)?;
    let steps = args.batches(train_set.len()).div_ceil(ranks);
    let (mut method, updates) = method(group.clone(), Steps::new(steps))?;
    let mut log = Log::create(args.metrics.as_deref(), rank, ranks)?;
    let begun = Instant::now();
    train(args, &train_set, Shard::from(&group), &mut theta, method.as_mut(), &mut log)?;
    let seconds = begun.elapsed().as_secs_f64();
    log.end(method.traffic())?;
    group.barrier()?;
    if rank == 0 {
        let (loss, accuracy) = model::evaluate(&theta, &test_set)?;
        let batches = steps * ranks;
        let name = name.to_owned();
        let workers = ranks;
        log.outcome(&Outcome { name, workers, updates, batches, seconds, loss, accuracy })?;
        if let Some(traffic) = method.traffic() {
            println!("{}", traffic.per_step(rank, steps));
        }
    }
    Ok(())
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
    let shared = SharedModel::new(model::initial_parameters(args.seed), batches)?;
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
            log.update(update)?;
            staleness.push(update.staleness);
        }
        if thread == 0 {
            log.outcome(&outcome)?;
        }
        log.end(None)?;
    }
    let mean = staleness.iter().sum::<usize>() as f64 / staleness.len() as f64;
    let most = staleness.iter().max().copied().unwrap_or_default();
    println!("staleness: {mean:.2} in the mean, at most {most}");
    Ok(())
}

fn local_sgd(args: &LocalSgdArgs, group: ProcessGroup, steps: Steps) -> LocalSgd {
    LocalSgd { group, steps, lr: args.train.lr, period: args.period, since_mean: 0 }
}

/// What exchanges between ranks needs more than one.
fn several(group: ProcessGroup) -> Result<Link> {
    ensure!(
        group.world_size() > 1,
        "a world of 1 has nobody to exchange with; start at least 2 ranks, as with `cargo launch -n 2 async-update -- …`"
    );
    Ok(Link::new(group))
}
