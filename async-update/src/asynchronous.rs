//! Trains with a method in which a server keeps θ: the first ranks are servers, a shard of θ each,
//! all others are workers. Nobody waits for a worker: it may be slow, come late, or be killed.

use crate::args::TrainArgs;
use crate::events::{Log, Outcome};
use crate::methods::Method;
use crate::server::{Budget, Desk, Gate, Rule, Shard as ThetaShard, Shards, part};
use crate::{model, pace};
use anyhow::{Result, bail};
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use tch::{Device, Kind, Tensor};
use tch_parallel::Error;
use tch_parallel::data::{Dataset, Shard};
use tch_parallel::distributed::{Env, ProcessGroup, ProcessGroupOptions, Store};

/// Under this key shard 0 says that the batches are done and the last worker has gone.
const OVER: &str = "over";

/// What the server of a method does; what a worker does is a [`Method`].
#[derive(Debug, Clone, Copy)]
pub struct Service<'a> {
    /// The method, as on the command line.
    pub name: &'a str,
    /// Into how many shards θ is cut.
    pub servers: usize,
    /// What an update does.
    pub rule: Rule,
    /// Who may read when.
    pub gate: Gate,
}

/// This process's place in the job.
struct Place {
    rank: usize,
    ranks: usize,
    workers: Range<usize>,
}

/// Runs this process as a server or as a worker, as its rank says.
pub fn asynchronous(
    service: Service<'_>,
    args: &TrainArgs,
    method: impl FnOnce(Shards) -> Box<dyn Method>,
) -> Result<()> {
    let place = Place::check(service.servers)?;
    pace::check(&args.straggle, place.workers.clone())?;
    let options = args.meeting.process_group();
    if place.rank < service.servers {
        return serve(service, args, place, options);
    }
    // What can go wrong with these goes wrong before anybody counts on this worker.
    let (train_set, _) = args.data()?;
    let mut log = Log::create(args.metrics.as_deref(), place.rank, place.ranks)?;
    let store = Store::from_env(options.timeout)?;
    let shards = Shards::connect(&store, place.rank, service.servers, options)?;
    let mut theta = Tensor::zeros([model::PARAMETERS as i64], (Kind::Float, Device::Cpu));
    let part = Shard::new(place.rank - service.servers, place.workers.len())?;
    let mut method = method(shards);
    crate::train(args, &train_set, part, &mut theta, method.as_mut(), &mut log)?;
    Ok(log.end(method.traffic())?)
}

impl Place {
    /// Refuses a job that has too few ranks for so many shards, or too many shards for θ.
    fn check(servers: usize) -> Result<Place> {
        let (rank, ranks) = Env::read()?.map_or((0, 1), |env| (env.rank, env.world_size));
        let refuse = |expected| {
            let (what, found) = ("--servers".into(), format!("{servers} in a world of {ranks}"));
            Err(Error::Argument { what, found, expected }.into())
        };
        if servers > model::PARAMETERS {
            return refuse(format!("at most {}, one for each parameter", model::PARAMETERS));
        }
        if servers >= ranks {
            return refuse(format!(
                "below the number of ranks, so that at least one is a worker: `cargo launch -n {} async-update -- …`",
                servers + 1
            ));
        }
        Ok(Place { rank, ranks, workers: servers..ranks })
    }
}

/// Keeps a shard of θ until the batches are done; rank 0 then looks what θ has become.
fn serve(
    service: Service<'_>,
    args: &TrainArgs,
    place: Place,
    options: ProcessGroupOptions,
) -> Result<()> {
    let Service { name, servers, rule, gate } = service;
    let Place { rank, ranks, workers } = place;
    let (train_set, test_set) = args.data()?;
    let planned = args.batches(train_set.len());
    let range = part(servers, rank);
    let theta =
        model::initial_parameters(args.seed).narrow(0, range.start as i64, range.len() as i64);
    let budget = if rank == 0 { Budget::new(planned) } else { Budget::unlimited() };
    let log = Log::create(args.metrics.as_deref(), rank, ranks)?;
    let store = Store::from_env(options.timeout)?;
    // The servers need each other; workers need not come.
    let colleagues =
        ProcessGroup::with_store(&store.with_prefix("servers")?, rank, servers, options)?;
    let desk = Desk {
        store: store.clone(),
        number: rank,
        workers,
        options,
        shard: Mutex::new(ThetaShard::new(theta.copy(), rule, gate, budget, log)),
        changed: Condvar::new(),
        served: AtomicUsize::new(0),
    };
    let begun = Instant::now();
    thread::scope(|scope| {
        let mut come = BTreeSet::new();
        desk.attend(scope, &mut come, |come| match rank {
            0 => is_over(&desk, come, begun, planned),
            // What shard 0 decides.
            _ => Ok(desk.shard().workers() == 0 && store.check(OVER)?),
        })?;
        desk.shard().close();
        if rank == 0 {
            store.set(OVER, b"")?;
            let theta = gather(&colleagues, desk.shard().theta())?;
            let (loss, accuracy) = model::evaluate(&theta, &test_set)?;
            let mut shard = desk.shard();
            let batches = shard.batches();
            let updates = match rule {
                Rule::Gradient { .. } => shard.version(),
                // Workers make the steps; the centre only follows.
                Rule::Elastic { .. } => batches,
            };
            let seconds = shard.duration().as_secs_f64();
            let (name, workers) = (name.to_owned(), come.len());
            let outcome = Outcome { name, workers, updates, batches, seconds, loss, accuracy };
            shard.log().outcome(&outcome)?;
            println!("{}", shard.staleness());
        } else {
            colleagues.send(desk.shard().theta(), 0)?;
        }
        stay_for_those_who_have_not_come(&desk, &mut come, begun, scope)?;
        Ok::<_, anyhow::Error>(colleagues.barrier()?)
    })?;
    let mut shard = desk.shard();
    let traffic = shard.traffic();
    Ok(shard.log().end(Some(traffic))?)
}

/// Whether the batches are done and the last worker has gone.
///
/// # Errors
/// If nobody is left to do them.
fn is_over(desk: &Desk, come: &BTreeSet<usize>, begun: Instant, planned: usize) -> Result<bool> {
    let nobody_comes = come.len() == desk.workers.len() || begun.elapsed() >= desk.options.timeout;
    let nobody_is_here = desk.served.load(Ordering::Relaxed) == 0;
    let shard = desk.shard();
    if nobody_comes && nobody_is_here && !shard.is_over() {
        bail!(
            "no worker is left after {} of {planned} batches: {} of {} have come, and are gone",
            shard.batches(),
            come.len(),
            desk.workers.len()
        );
    }
    Ok(shard.is_over())
}

/// θ, of which each server has a shard.
fn gather(servers: &ProcessGroup, own: &Tensor) -> Result<Tensor> {
    let mut shards = vec![own.copy()];
    for server in 1..servers.world_size() {
        let length = part(servers.world_size(), server).len() as i64;
        let mut shard = Tensor::zeros([length], (Kind::Float, Device::Cpu));
        servers.recv(&mut shard, server)?;
        shards.push(shard);
    }
    Ok(Tensor::f_cat(&shards, 0)?)
}

/// A worker that comes when all is done is told so, rather than left before a closed door.
fn stay_for_those_who_have_not_come<'scope>(
    desk: &'scope Desk,
    come: &mut BTreeSet<usize>,
    begun: Instant,
    scope: &'scope thread::Scope<'scope, '_>,
) -> Result<()> {
    let missing: Vec<_> = desk.workers.clone().filter(|worker| !come.contains(worker)).collect();
    if !missing.is_empty() && desk.number == 0 {
        let left = desk.options.timeout.saturating_sub(begun.elapsed());
        let left = Duration::from_secs(left.as_secs());
        eprintln!(
            "[server] all is done; waiting {left:?} for workers {missing:?}, which have not come"
        );
    }
    desk.attend(scope, come, |come| {
        Ok(come.len() == desk.workers.len() || begun.elapsed() >= desk.options.timeout)
    })
}
