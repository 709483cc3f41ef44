//! How a worker and the servers find each other, and the worker's side of what they say.

use super::protocol::{Answer, Request, SERVER, WORKER, receive, send};
use crate::{args::ServerArgs, link::Link};
use tch::Tensor;
use tch_parallel::distributed::{ProcessGroup, ProcessGroupOptions, Store};
use tch_parallel::{Error, Result};

/// Under this key of a connection the worker says that it has come.
pub const HERE: &str = "here";

/// Where a worker and a shard meet: they form a group of their own, so that its failure affects no others.
pub fn meeting_point(store: &Store, worker: usize, shard: usize) -> Result<Store> {
    store.with_prefix(&format!("connection/{worker}/{shard}"))
}

/// Connects [`SERVER`] or [`WORKER`] to the other one that has come to this meeting point.
pub fn connect(meeting_point: &Store, own: usize, options: ProcessGroupOptions) -> Result<Link> {
    Ok(Link { group: ProcessGroup::with_store(meeting_point, own, 2, options)? })
}

/// All shards of θ, as a worker sees them: one connection to each. The server of shard s is rank s.
pub struct Shards {
    links: Vec<Link>,
}

impl Shards {
    pub fn connect(worker: usize, args: &ServerArgs) -> Result<Shards> {
        let meeting = &args.train.meeting;
        let store = Store::from_env(meeting.timeout())?;
        let link = |shard| {
            let meeting_point = meeting_point(&store, worker, shard)?;
            meeting_point.set(HERE, b"")?;
            connect(&meeting_point, WORKER, meeting.process_group())
        };
        let links = (0..args.servers).map(|shard| link(shard).map_err(lost(shard)));
        Ok(Shards { links: links.collect::<Result<_>>()? })
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
            send(link, Request::Fetch { wanted: granted }, SERVER)?;
            granted = self.granted(shard)?;
            if granted > 0 { link.recv(part, SERVER) } else { Ok(()) }
        })?;
        Ok(granted)
    }

    /// Sends a gradient, the sum over this number of batches.
    pub fn push(&self, gradient: &Tensor, batches: usize) -> Result<()> {
        let parts = gradient.tensor_split(self.links.len() as i64, 0);
        // Where all meet, shard 0 lets them go on: by then, the other shards have been sent this.
        for (shard, (link, part)) in self.links.iter().zip(parts).enumerate().rev() {
            let sent = send(link, Request::Push { batches }, SERVER);
            sent.and_then(|()| link.send(&part, SERVER)).map_err(lost(shard))?;
        }
        Ok(())
    }

    /// Moves this worker's parameters, after this number of batches, and the servers' towards each
    /// other. Returns how many of the `wanted` batches this worker may do.
    pub fn exchange(&self, theta: &mut Tensor, batches: usize, wanted: usize) -> Result<usize> {
        let mut granted = wanted;
        self.each(theta, |shard, link, part| {
            send(link, Request::Exchange { batches, wanted: granted }, SERVER)?;
            link.send(part, SERVER)?;
            granted = self.granted(shard)?;
            let mut force = part.empty_like();
            link.recv(&mut force, SERVER)?;
            let _ = part.f_sub_(&force)?;
            Ok(())
        })?;
        Ok(granted)
    }

    /// Says goodbye: the servers no longer count on this worker.
    pub fn leave(&self) -> Result<()> {
        self.tell(Request::Done, |_| true)
    }

    /// The batches that a shard grants, once it does. The other servers learn meanwhile that this worker is alive.
    fn granted(&self, shard: usize) -> Result<usize> {
        loop {
            match receive(&self.links[shard], SERVER)? {
                Answer::Granted(batches) => return Ok(batches),
                Answer::Patience => self.tell(Request::Patience, |other| other != shard)?,
            }
        }
    }

    fn tell(&self, request: Request, to: impl Fn(usize) -> bool) -> Result<()> {
        let mut links = self.links.iter().enumerate().filter(|&(shard, _)| to(shard));
        links.try_for_each(|(shard, link)| send(link, request, SERVER).map_err(lost(shard)))
    }

    /// Calls `f` with each shard and its part of a tensor, in order.
    fn each(
        &self,
        tensor: &Tensor,
        mut f: impl FnMut(usize, &Link, &mut Tensor) -> Result<()>,
    ) -> Result<()> {
        let parts = tensor.tensor_split(self.links.len() as i64, 0);
        let mut shards = self.links.iter().zip(parts).enumerate();
        shards.try_for_each(|(at, (link, mut part))| f(at, link, &mut part).map_err(lost(at)))
    }
}

/// Says which server a worker has lost.
fn lost(shard: usize) -> impl FnOnce(Error) -> Error {
    let server = match shard {
        0 => "the parameter server, rank 0".to_owned(),
        _ => format!("the parameter server of shard {shard}, rank {shard}"),
    };
    move |mut error| {
        match &mut error {
            Error::Collective { blame, .. } => {
                let why = blame.take().map_or_else(String::new, |blame| format!(": {blame}"));
                *blame = Some(format!("this worker has lost {server}{why}"));
            }
            Error::Rendezvous { operation, .. } => *operation = format!("reach {server}"),
            _ => {}
        }
        error
    }
}
