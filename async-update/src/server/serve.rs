//! The server's process: it keeps a shard of θ until the batches are done, and serves every worker
//! that comes on a thread of its own.

use super::connection::{HERE, connect, meeting_point};
use super::protocol::{Answer, Request, SERVER, WORKER, receive, send};
use super::{gate::Gate, rule::Rule, shard::Shard};
use crate::events::{Log, Outcome};
use crate::{args::ServerArgs, exhibits::histogram, link::Link, model};
use anyhow::{Result, ensure};
use report::{eprintln, println};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ScopedJoinHandle};
use std::{collections::BTreeMap, time::Duration, time::Instant};
use tch_parallel::distributed::{Env, ProcessGroup, ProcessGroupOptions, ReduceOp, Store};
use tch_parallel::{Error, data, data::Dataset};

/// Under this key shard 0 says that the batches are done and the last worker has gone.
const OVER: &str = "over";

/// What the server of a method does.
#[derive(Debug, Clone, Copy)]
pub struct Service<'a> {
    /// The method, as on the command line.
    pub name: &'a str,
    pub rule: Rule,
    pub gate: Gate,
}

/// Keeps a shard of θ until the batches are done; rank 0 then evaluates the model.
pub fn serve(service: Service<'_>, env: &Env, args: &ServerArgs) -> Result<()> {
    let (rank, workers) = (env.rank, args.workers(env));
    let (servers, args) = (args.servers, &args.train);
    let (train_set, test_set) = args.data()?;
    let planned = args.batches(train_set.len());
    let theta = model::initial_parameters(args.seed).tensor_split(servers as i64, 0).remove(rank);
    // What shard 0 grants the others do not question.
    let batches = if rank == 0 { planned } else { usize::MAX };
    let log = Log::create(args.metrics.as_deref(), data::Shard::new(rank, env.world_size)?)?;
    let (options, timeout) = (args.meeting.process_group(), args.meeting.timeout());
    let store = Store::from_env(timeout)?;
    // The servers need each other; workers need not come.
    let colleagues =
        ProcessGroup::with_store(&store.with_prefix("servers")?, rank, servers, options)?;
    // It also decides alone where all meet: a worker's clock may begin differently on each shard.
    let gate = match service.gate {
        Gate::Every(_) if rank > 0 => Gate::Free,
        gate => gate,
    };
    let shard = Mutex::new(Shard::new(theta.copy(), service.rule, gate, batches, log));
    let server = Server { rank, store, options, timeout, shard, changed: Condvar::new() };

    let begun = Instant::now();
    let here = |worker| meeting_point(&server.store, worker, rank)?.check(HERE);
    thread::scope(|scope| {
        // Each worker that has come, with the thread that serves it.
        let mut come = BTreeMap::new();
        let mut concluded = false;
        loop {
            for worker in workers.clone() {
                if !come.contains_key(&worker) && here(worker)? {
                    let server = &server;
                    come.insert(worker, scope.spawn(move || server.serve(worker)));
                }
            }
            let waiting = timeout.saturating_sub(begun.elapsed());
            let nobody_else_comes = come.len() == workers.len() || waiting.is_zero();
            let nobody_is_left =
                nobody_else_comes && come.values().all(ScopedJoinHandle::is_finished);
            if server.is_over()? && !concluded {
                concluded = true;
                if rank == 0 {
                    server.store.set(OVER, b"")?;
                }
                // All of θ, of which each server has a shard; only rank 0 gets it.
                let mut theta = model::zeros();
                theta.tensor_split(servers as i64, 0)[rank].copy_(&server.shard().theta);
                colleagues.reduce(&mut theta, 0, ReduceOp::Sum)?;
                if rank == 0 {
                    server.conclude(service, come.len(), model::evaluate(&theta, &test_set)?)?;
                    let mut missing: Vec<_> = workers.clone().collect();
                    missing.retain(|worker| !come.contains_key(worker));
                    if !missing.is_empty() {
                        let limit = Duration::from_secs(waiting.as_secs());
                        eprintln!(
                            "[server] all is done; waiting {limit:?} for workers {missing:?}, which have not come"
                        );
                    }
                }
            }
            ensure!(
                concluded || rank > 0 || !nobody_is_left,
                "no worker is left after {} of {planned} batches: {} of {} have come, and are gone",
                server.shard().done,
                come.len(),
                workers.len()
            );
            // A worker that comes when all is done is told so, rather than left waiting for a server.
            if concluded && nobody_else_comes {
                return Ok(colleagues.barrier()?);
            }
            thread::sleep(Duration::from_millis(10));
        }
    })?;
    Ok(server.shard().log.end()?)
}

/// What the threads of a server share.
struct Server {
    rank: usize,
    /// Where workers announce themselves.
    store: Store,
    options: ProcessGroupOptions,
    /// How long to wait for one that is silent.
    timeout: Duration,
    shard: Mutex<Shard>,
    /// Notified when a worker has made an update or left: others may wait for that.
    changed: Condvar,
}

impl Server {
    fn shard(&self) -> MutexGuard<'_, Shard> {
        self.shard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the batches are done and the last worker has gone.
    fn is_over(&self) -> Result<bool> {
        // Only shard 0 knows how many batches there are.
        if self.rank > 0 && self.store.check(OVER)? {
            self.shard().close();
        }
        let mut shard = self.shard();
        shard.failure.take().map_or(Ok(shard.is_through()), |failure| Err(failure.into()))
    }

    /// Tells how the training by this number of workers went. `tested`: the model's loss and accuracy.
    fn conclude(&self, service: Service<'_>, workers: usize, tested: (f64, f64)) -> Result<()> {
        let (loss, accuracy) = tested;
        let mut shard = self.shard();
        let batches = shard.done;
        let updates = match service.rule {
            Rule::Gradient { .. } => shard.version(),
            // Workers make the steps; the centre only follows.
            Rule::Elastic { .. } => batches,
        };
        let (name, seconds) = (service.name.to_owned(), shard.duration().as_secs_f64());
        let outcome = Outcome { name, workers, updates, batches, seconds, loss, accuracy };
        shard.log.outcome(&outcome)?;
        println!("{}", histogram(&shard.staleness));
        Ok(())
    }

    /// Serves one worker until it goes. If it is lost, the others go on.
    fn serve(&self, worker: usize) {
        let served = self.answer(worker);
        let mut shard = self.shard();
        shard.leave(worker);
        let cause = match served {
            Ok(()) => None,
            // Who is to blame says more than which exchange failed.
            Err(Error::Collective { blame, message, .. }) => Some(blame.unwrap_or(message)),
            Err(Error::Rendezvous { message, .. }) => Some(message),
            Err(error) => {
                shard.failure.get_or_insert(error);
                shard.close();
                None
            }
        };
        // All servers lose it; one of them says so.
        if let Some(cause) = cause.filter(|_| self.rank == 0) {
            let left = match shard.workers.len() {
                0 => "no worker is left".into(),
                1 => "1 worker goes on".into(),
                workers => format!("{workers} workers go on"),
            };
            eprintln!("[server] worker {worker} is gone ({cause}); {left}");
        }
        drop(shard);
        self.changed.notify_all();
    }

    /// Connects to a worker, and answers what it asks until it leaves.
    fn answer(&self, worker: usize) -> tch_parallel::Result<()> {
        // Over a connection of its own to the store: should the worker be lost now, only this thread waits for it.
        let meeting_point = meeting_point(&self.store.try_clone()?, worker, self.rank)?;
        let link = &connect(&meeting_point, SERVER, self.options)?;
        self.shard().join(worker);
        let mut buffer = self.shard().theta.empty_like();
        loop {
            match receive(link, WORKER)? {
                Request::Fetch { wanted } => {
                    let granted =
                        self.wait_for_turn(worker, link)?.read(worker, wanted, &mut buffer)?;
                    send(link, Answer::Granted(granted), WORKER)?;
                    if granted > 0 {
                        link.send(&buffer, WORKER)?;
                    }
                }
                Request::Push { batches } => {
                    link.recv(&mut buffer, WORKER)?;
                    self.shard().update(worker, batches, &buffer)?;
                    self.changed.notify_all();
                }
                Request::Exchange { batches, wanted } => {
                    link.recv(&mut buffer, WORKER)?;
                    let force = self.shard().update(worker, batches, &buffer)?;
                    self.changed.notify_all();
                    let granted = self.wait_for_turn(worker, link)?.grant(worker, wanted);
                    send(link, Answer::Granted(granted), WORKER)?;
                    if let Some(force) = force {
                        link.send(&force, WORKER)?;
                    }
                }
                Request::Patience => {}
                Request::Done => return Ok(()),
            }
        }
    }

    /// Locks the shard as soon as it has an answer for a worker that asks for batches.
    fn wait_for_turn(&self, worker: usize, link: &Link) -> Result<MutexGuard<'_, Shard>, Error> {
        let must_wait = |shard: &mut Shard| !shard.ask(worker);
        loop {
            let waited = self.changed.wait_timeout_while(self.shard(), self.timeout / 4, must_wait);
            let (shard, result) = waited.unwrap_or_else(PoisonError::into_inner);
            if !result.timed_out() {
                return Ok(shard);
            }
            drop(shard);
            send(link, Answer::Patience, WORKER)?;
        }
    }
}
