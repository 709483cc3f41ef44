//! The server's process: it keeps a shard of θ until the batches are done, and serves every worker
//! that comes on a thread of its own.

use super::connection::{accept, has_come};
use super::gate::Gate;
use super::protocol::{self, Request, WORKER};
use super::rule::Rule;
use super::shard::Shard;
use super::workers::Workers;
use crate::args::{Place, TrainArgs};
use crate::events::{End, Log, Outcome};
use crate::link::{Link, Traffic};
use crate::model;
use crate::ring::chunk;
use anyhow::{Result, bail};
use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};
use tch::{Device, Kind, Tensor};
use tch_parallel::Error;
use tch_parallel::data::Dataset;
use tch_parallel::distributed::{ProcessGroup, ProcessGroupOptions, Store};

/// Under this key shard 0 says that the batches are done and the last worker has gone.
const OVER: &str = "over";

/// Between two looks at who has come.
const INTERVAL: Duration = Duration::from_millis(10);

/// What the server of a method does.
#[derive(Debug, Clone, Copy)]
pub struct Service<'a> {
    /// The method, as on the command line.
    pub name: &'a str,
    /// What an update does.
    pub rule: Rule,
    /// Who may read when.
    pub gate: Gate,
}

/// Keeps a shard of θ until the batches are done; rank 0 then evaluates the model.
pub fn serve(service: Service<'_>, place: Place, args: &TrainArgs) -> Result<()> {
    let Service { name, rule, gate } = service;
    let Place { rank, servers, ranks } = place;
    let (train_set, test_set) = args.data()?;
    let planned = args.batches(train_set.len());
    let theta = chunk(&model::initial_parameters(args.seed), servers, rank);
    // What shard 0 grants the others do not question.
    let workers = Workers::new(if rank == 0 { planned } else { usize::MAX });
    let log = Log::create(args.metrics.as_deref(), rank, ranks)?;
    let options = args.meeting.process_group();
    let store = Store::from_env(options.timeout)?;
    // The servers need each other; workers need not come.
    let colleagues =
        ProcessGroup::with_store(&store.with_prefix("servers")?, rank, servers, options)?;
    let server = Server {
        place,
        store,
        options,
        begun: Instant::now(),
        shard: Mutex::new(Shard::new(theta.copy(), rule, gate, workers, log)),
        changed: Condvar::new(),
    };
    thread::scope(|scope| {
        let mut come = Come::new();
        server.attend(scope, &mut come, |come| match rank {
            0 => server.is_over(come, planned),
            _ => Ok(server.shard().workers.len() == 0 && server.store.check(OVER)?),
        })?;
        server.shard().workers.close();
        if rank == 0 {
            server.store.set(OVER, b"")?;
            let theta = gather(&colleagues, &server.shard().theta)?;
            let (loss, accuracy) = model::evaluate(&theta, &test_set)?;
            let workers = come.len();
            let mut shard = server.shard();
            let batches = shard.workers.done();
            let updates = match rule {
                Rule::Gradient { .. } => shard.version,
                // Workers make the steps; the centre only follows.
                Rule::Elastic { .. } => batches,
            };
            let (name, seconds) = (name.to_owned(), shard.duration().as_secs_f64());
            let outcome = Outcome { name, workers, updates, batches, seconds, loss, accuracy };
            shard.log.outcome(&outcome)?;
            println!("{}", shard.staleness);
        } else {
            colleagues.send(&server.shard().theta, 0)?;
        }
        server.stay_for_those_who_have_not_come(scope, &mut come)?;
        Ok::<_, anyhow::Error>(colleagues.barrier()?)
    })?;
    let mut shard = server.shard();
    let traffic = Some(shard.traffic);
    Ok(shard.log.event("end", &End { traffic })?)
}

/// All of θ, of which each server has a shard.
fn gather(servers: &ProcessGroup, own: &Tensor) -> Result<Tensor> {
    let theta = Tensor::zeros([model::PARAMETERS as i64], (Kind::Float, Device::Cpu));
    let shard = |server| chunk(&theta, servers.world_size(), server);
    shard(0).copy_(own);
    for server in 1..servers.world_size() {
        servers.recv(&mut shard(server), server)?;
    }
    Ok(theta)
}

/// What the threads of a server share.
struct Server {
    place: Place,
    /// Where workers announce themselves.
    store: Store,
    /// How to connect to them, and how long to wait for one that is silent.
    options: ProcessGroupOptions,
    begun: Instant,
    shard: Mutex<Shard>,
    /// Notified when a worker has made an update or left: others may wait for that.
    changed: Condvar,
}

/// The workers that have come so far, each with the thread that serves it.
type Come<'scope> = BTreeMap<usize, ScopedJoinHandle<'scope, ()>>;

impl Server {
    fn shard(&self) -> MutexGuard<'_, Shard> {
        self.shard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether nobody else will come.
    fn is_complete(&self, come: &Come<'_>) -> bool {
        come.len() == self.place.workers().len() || self.begun.elapsed() >= self.options.timeout
    }

    /// Starts to serve each worker that comes, until `is_over`.
    fn attend<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        come: &mut Come<'scope>,
        mut is_over: impl FnMut(&Come<'_>) -> Result<bool>,
    ) -> Result<()> {
        loop {
            for worker in self.place.workers() {
                if !come.contains_key(&worker) && has_come(&self.store, worker, self.place.rank)? {
                    come.insert(worker, scope.spawn(move || self.serve(worker)));
                }
            }
            if let Some(failure) = self.shard().failure.take() {
                return Err(failure.into());
            }
            if is_over(come)? {
                return Ok(());
            }
            thread::sleep(INTERVAL);
        }
    }

    /// Whether the batches are done and the last worker has gone.
    ///
    /// # Errors
    /// If nobody is left to do them.
    fn is_over(&self, come: &Come<'_>, planned: usize) -> Result<bool> {
        let nobody_is_left =
            self.is_complete(come) && come.values().all(ScopedJoinHandle::is_finished);
        let is_over = self.shard().workers.are_through();
        if nobody_is_left && !is_over {
            bail!(
                "no worker is left after {} of {planned} batches: {} of {} have come, and are gone",
                self.shard().workers.done(),
                come.len(),
                self.place.workers().len()
            );
        }
        Ok(is_over)
    }

    /// A worker that comes when all is done is told so, rather than left waiting for a server.
    fn stay_for_those_who_have_not_come<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        come: &mut Come<'scope>,
    ) -> Result<()> {
        let missing: Vec<_> =
            self.place.workers().filter(|worker| !come.contains_key(worker)).collect();
        if !missing.is_empty() && self.place.rank == 0 {
            let left = self.options.timeout.saturating_sub(self.begun.elapsed());
            let left = Duration::from_secs(left.as_secs());
            eprintln!(
                "[server] all is done; waiting {left:?} for workers {missing:?}, which have not come"
            );
        }
        self.attend(scope, come, |come| Ok(self.is_complete(come)))
    }

    /// Serves one worker until it goes. If it is lost, the others go on.
    fn serve(&self, worker: usize) {
        let mut traffic = Traffic::default();
        let served = self.connect(worker).and_then(|link| {
            self.shard().workers.join(worker);
            let served = self.answer(worker, &link);
            traffic = link.traffic();
            served
        });
        let mut shard = self.shard();
        shard.workers.leave(worker);
        shard.traffic = shard.traffic + traffic;
        match served {
            Ok(()) => {}
            Err(error @ (Error::Collective { .. } | Error::Rendezvous { .. })) => {
                // All servers lose it; one of them says so.
                if self.place.rank == 0 {
                    let left = match shard.workers.len() {
                        0 => "no worker is left".into(),
                        1 => "1 worker goes on".into(),
                        workers => format!("{workers} workers go on"),
                    };
                    eprintln!("[server] worker {worker} is gone ({}); {left}", cause(error));
                }
            }
            Err(error) => {
                shard.failure.get_or_insert(error);
                shard.workers.close();
            }
        }
        drop(shard);
        self.changed.notify_all();
    }

    /// Over a connection of its own to the store: should the worker be lost now, only this thread
    /// waits for it.
    fn connect(&self, worker: usize) -> tch_parallel::Result<Link> {
        accept(&self.store.try_clone()?, worker, self.place.rank, self.options)
    }

    fn answer(&self, worker: usize, link: &Link) -> tch_parallel::Result<()> {
        let mut buffer = self.shard().theta.empty_like();
        loop {
            match protocol::receive_request(link)? {
                Request::Fetch { wanted } => {
                    let granted =
                        self.wait_for_leave(worker, link)?.read(worker, wanted, &mut buffer)?;
                    protocol::send_grant(link, granted)?;
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
                    let granted = self.wait_for_leave(worker, link)?.workers.grant(worker, wanted);
                    protocol::send_grant(link, granted)?;
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
    fn wait_for_leave(
        &self,
        worker: usize,
        link: &Link,
    ) -> tch_parallel::Result<MutexGuard<'_, Shard>> {
        let must_wait = |shard: &mut Shard| !shard.ask(worker);
        loop {
            let limit = self.options.timeout / 4;
            let waited = self.changed.wait_timeout_while(self.shard(), limit, must_wait);
            let (shard, result) = waited.unwrap_or_else(PoisonError::into_inner);
            if !result.timed_out() {
                return Ok(shard);
            }
            drop(shard);
            protocol::ask_for_patience(link)?;
        }
    }
}

/// Why a worker is gone: who is to blame says more than which exchange failed.
fn cause(error: Error) -> String {
    match error {
        Error::Collective { blame: Some(blame), .. } => blame,
        Error::Collective { message, .. } | Error::Rendezvous { message, .. } => message,
        other => other.to_string(),
    }
}
