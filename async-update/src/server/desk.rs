//! The server's side: whoever comes is served on a thread of its own.

use super::connection;
use super::protocol::{self, Request, WORKER};
use super::shard::Shard;
use crate::link::{Link, Traffic};
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Scope};
use std::time::Duration;
use tch_parallel::distributed::{ProcessGroupOptions, Store};
use tch_parallel::{Error, Result};

/// Between two looks at who has come.
const INTERVAL: Duration = Duration::from_millis(10);

/// One shard, and those who work on it.
pub struct Desk {
    /// Where workers announce themselves.
    pub store: Store,
    /// Which shard this is.
    pub number: usize,
    /// The ranks that may come.
    pub workers: Range<usize>,
    /// How to connect to them, and how long to wait for one that is silent.
    pub options: ProcessGroupOptions,
    /// The shard itself.
    pub shard: Mutex<Shard>,
    /// Whoever waits at the gate is told of every update and every farewell.
    pub changed: Condvar,
    /// How many workers are being connected or served.
    pub served: AtomicUsize,
}

impl Desk {
    /// Lets those in who come, until `is_over`, which is told who has come so far.
    pub fn attend<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        come: &mut BTreeSet<usize>,
        mut is_over: impl FnMut(&BTreeSet<usize>) -> anyhow::Result<bool>,
    ) -> anyhow::Result<()> {
        loop {
            for worker in self.workers.clone() {
                if !come.contains(&worker)
                    && connection::has_come(&self.store, worker, self.number)?
                {
                    come.insert(worker);
                    self.served.fetch_add(1, Ordering::Relaxed);
                    scope.spawn(move || self.serve(worker));
                }
            }
            if let Some(failure) = self.shard().failure() {
                return Err(failure.into());
            }
            if is_over(come)? {
                return Ok(());
            }
            thread::sleep(INTERVAL);
        }
    }

    /// Serves one worker until it goes. One that is lost takes nobody with it.
    fn serve(&self, worker: usize) {
        let mut traffic = Traffic::default();
        let served = self.accept(worker).and_then(|link| {
            self.shard().join(worker);
            let served = self.answer(worker, &link);
            traffic = link.traffic();
            served
        });
        let mut shard = self.shard();
        shard.leave(worker, traffic);
        let left = shard.workers();
        match served {
            Ok(()) => {}
            Err(error @ (Error::Collective { .. } | Error::Rendezvous { .. })) => {
                // All servers lose it; one of them says so.
                if self.number == 0 {
                    eprintln!(
                        "[server] worker {worker} is gone ({}); {}",
                        cause(error),
                        go_on(left)
                    );
                }
            }
            Err(error) => shard.fail(error),
        }
        drop(shard);
        self.served.fetch_sub(1, Ordering::Relaxed);
        self.changed.notify_all();
    }

    /// Over a connection of its own to the store: should the worker be lost now, only this thread
    /// waits for it.
    fn accept(&self, worker: usize) -> Result<Link> {
        connection::accept(&self.store.try_clone()?, worker, self.number, self.options)
    }

    fn answer(&self, worker: usize, link: &Link) -> Result<()> {
        let mut buffer = self.shard().theta().empty_like();
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
                    let granted = self.wait_for_leave(worker, link)?.grant(worker, wanted);
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

    /// The shard, as soon as it has an answer for a worker that asks for batches.
    fn wait_for_leave(&self, worker: usize, link: &Link) -> Result<MutexGuard<'_, Shard>> {
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

    pub fn shard(&self) -> MutexGuard<'_, Shard> {
        self.shard.lock().unwrap_or_else(PoisonError::into_inner)
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

fn go_on(workers: usize) -> String {
    match workers {
        0 => "no worker is left".into(),
        1 => "1 worker goes on".into(),
        _ => format!("{workers} workers go on"),
    }
}
