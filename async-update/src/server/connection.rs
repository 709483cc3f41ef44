//! How a worker and the servers find each other, and the worker's side of what they say.

use super::protocol::{self, Request, SERVER, WORKER};
use crate::link::{Link, Traffic};
use crate::ring::chunk;
use tch::Tensor;
use tch_parallel::distributed::{ProcessGroup, ProcessGroupOptions, Store};
use tch_parallel::{Error, Result};

/// Under this key of a connection the worker says that it has come.
const HERE: &str = "here";

/// Each worker and each shard form a group of their own, so that its failure affects no others.
fn meeting_point(store: &Store, worker: usize, shard: usize) -> Result<Store> {
    store.with_prefix(&format!("connection/{worker}/{shard}"))
}

/// Whether a worker waits for a shard.
pub fn has_come(store: &Store, worker: usize, shard: usize) -> Result<bool> {
    meeting_point(store, worker, shard)?.check(HERE)
}

/// The server's end of a connection to a worker that has come.
pub fn accept(
    store: &Store,
    worker: usize,
    shard: usize,
    options: ProcessGroupOptions,
) -> Result<Link> {
    let store = meeting_point(store, worker, shard)?;
    Ok(Link::new(ProcessGroup::with_store(&store, SERVER, 2, options)?))
}

/// All shards of θ, as a worker sees them: one connection to each. The server of shard s is rank s.
pub struct Shards {
    links: Vec<Link>,
}

impl Shards {
    /// Connects a worker, known by its rank, to all servers.
    pub fn connect(
        store: &Store,
        worker: usize,
        servers: usize,
        options: ProcessGroupOptions,
    ) -> Result<Shards> {
        let connect = |shard| {
            let store = meeting_point(store, worker, shard)?;
            store.set(HERE, b"")?;
            Ok(Link::new(ProcessGroup::with_store(&store, WORKER, 2, options)?))
        };
        let links: Result<_> =
            (0..servers).map(|shard| connect(shard).map_err(lost(shard))).collect();
        Ok(Shards { links: links? })
    }

    /// Fills `theta`, and returns how many of the `wanted` batches this worker may do before it asks
    /// again. With 0 there are none left, and `theta` stays as it is.
    pub fn fetch(&self, theta: &mut Tensor, wanted: usize) -> Result<usize> {
        let mut granted = wanted;
        self.each(theta, |shard, link, part| {
            // What shard 0 grants the others do not question.
            if granted == 0 && shard > 0 {
                return Ok(());
            }
            protocol::send_request(link, Request::Fetch { wanted: granted })?;
            granted = protocol::receive_grant(link, || self.ask_others_for_patience(shard))?;
            if granted > 0 { link.recv(part, SERVER) } else { Ok(()) }
        })?;
        Ok(granted)
    }

    /// Sends a gradient, the sum over this number of batches.
    pub fn push(&self, gradient: &Tensor, batches: usize) -> Result<()> {
        self.each(gradient, |_, link, part| {
            protocol::send_request(link, Request::Push { batches })?;
            link.send(part, SERVER)
        })
    }

    /// Moves this worker's parameters, after this number of batches, and the servers' towards each
    /// other. Returns how many of the `wanted` batches this worker may do.
    pub fn exchange(&self, theta: &mut Tensor, batches: usize, wanted: usize) -> Result<usize> {
        let mut granted = wanted;
        self.each(theta, |shard, link, part| {
            protocol::send_request(link, Request::Exchange { batches, wanted: granted })?;
            link.send(part, SERVER)?;
            granted = protocol::receive_grant(link, || self.ask_others_for_patience(shard))?;
            let mut force = part.empty_like();
            link.recv(&mut force, SERVER)?;
            part.f_sub_(&force).map(|_| ()).map_err(Error::tensor("move θ"))
        })?;
        Ok(granted)
    }

    /// Tells all servers but the one that this worker waits for that it is still alive.
    fn ask_others_for_patience(&self, waiting_for: usize) -> Result<()> {
        for (shard, link) in self.links.iter().enumerate() {
            if shard != waiting_for {
                protocol::send_request(link, Request::Patience).map_err(lost(shard))?;
            }
        }
        Ok(())
    }

    /// Says goodbye: the servers no longer count on this worker.
    pub fn leave(&self) -> Result<()> {
        for (shard, link) in self.links.iter().enumerate() {
            protocol::send_request(link, Request::Done).map_err(lost(shard))?;
        }
        Ok(())
    }

    /// What has gone over all connections.
    pub fn traffic(&self) -> Traffic {
        self.links.iter().fold(Traffic::default(), |sum, link| sum + link.traffic())
    }

    /// Calls `f` with each shard and its part of a tensor, in order.
    fn each(
        &self,
        tensor: &Tensor,
        mut f: impl FnMut(usize, &Link, &mut Tensor) -> Result<()>,
    ) -> Result<()> {
        for (shard, link) in self.links.iter().enumerate() {
            f(shard, link, &mut chunk(tensor, self.links.len(), shard)).map_err(lost(shard))?;
        }
        Ok(())
    }
}

/// Says which server a worker has lost.
fn lost(shard: usize) -> impl FnOnce(Error) -> Error {
    let server = match shard {
        0 => "the parameter server, rank 0".to_owned(),
        _ => format!("the parameter server of shard {shard}, rank {shard}"),
    };
    move |error| match error {
        Error::Collective { rank, operation, message, blame } => {
            let blame = blame.map_or_else(String::new, |blame| format!(": {blame}"));
            let blame = Some(format!("this worker has lost {server}{blame}"));
            Error::Collective { rank, operation, message, blame }
        }
        Error::Rendezvous { rank, world_size, message, .. } => {
            Error::Rendezvous { rank, world_size, operation: format!("reach {server}"), message }
        }
        other => other,
    }
}
