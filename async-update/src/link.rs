//! Point-to-point exchanges whose bytes are counted.

use crate::model::PARAMETERS;
use anyhow::ensure;
use std::cell::Cell;
use std::ops::Add;
use tch::Tensor;
use tch_parallel::Result;
use tch_parallel::distributed::ProcessGroup;

/// A group in which this rank sends and receives, and how much it has.
#[derive(Debug)]
pub struct Link {
    group: ProcessGroup,
    traffic: Cell<Traffic>,
}

/// What has gone over a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
pub struct Traffic {
    /// Bytes handed to `send`.
    pub sent: usize,
    /// Bytes that `recv` has filled.
    pub received: usize,
}

impl Add for Traffic {
    type Output = Traffic;

    fn add(self, other: Traffic) -> Traffic {
        Traffic { sent: self.sent + other.sent, received: self.received + other.received }
    }
}

impl Traffic {
    /// In words, and in units of the article's K, the size of all parameters.
    pub fn per_step(self, rank: usize, steps: usize) -> String {
        let Traffic { sent, received } = self;
        let model = PARAMETERS * size_of::<f32>();
        let in_k = |bytes: usize| bytes as f64 / (model * steps) as f64;
        format!(
            "rank {rank} sent {sent} bytes and received {received}, in each of {steps} steps {:.4} K and {:.4} K, with K = {model} bytes",
            in_k(sent),
            in_k(received)
        )
    }
}

impl Link {
    pub fn new(group: ProcessGroup) -> Link {
        Link { group, traffic: Cell::default() }
    }

    /// Among the ranks of a job, of which there must be at least two.
    pub fn between_ranks(group: ProcessGroup) -> anyhow::Result<Link> {
        ensure!(
            group.world_size() > 1,
            "a world of 1 has nobody to exchange with; start at least 2 ranks, as with `cargo launch -n 2 async-update -- …`"
        );
        Ok(Link::new(group))
    }

    pub fn rank(&self) -> usize {
        self.group.rank()
    }

    pub fn world_size(&self) -> usize {
        self.group.world_size()
    }

    pub fn traffic(&self) -> Traffic {
        self.traffic.get()
    }

    fn count(&self, sent: usize, received: usize) {
        self.traffic.set(self.traffic.get() + Traffic { sent, received });
    }

    /// Sends a tensor to rank `dst`, which must receive one of this shape.
    pub fn send(&self, tensor: &Tensor, dst: usize) -> Result<()> {
        self.count(bytes(tensor), 0);
        self.group.send(tensor, dst)
    }

    /// Fills a tensor with what rank `src` sends.
    pub fn recv(&self, tensor: &mut Tensor, src: usize) -> Result<()> {
        self.count(0, bytes(tensor));
        self.group.recv(tensor, src)
    }

    // ANCHOR: exchange
    /// Sends to one rank and receives from another at the same time. In a ring everybody does
    /// this at once; if all sent first, and a send waited for its receiver, nobody would receive.
    pub fn exchange(&self, send: Tensor, dst: usize, recv: Tensor, src: usize) -> Result<Tensor> {
        self.count(bytes(&send), bytes(&recv));
        let received = self.group.irecv(recv, src)?;
        let sent = self.group.isend(send, dst)?;
        // The tensor sent is whole again.
        let _ = sent.wait()?;
        received.wait()
    }
    // ANCHOR_END: exchange
}

fn bytes(tensor: &Tensor) -> usize {
    tensor.numel() * tensor.kind().elt_size_in_bytes()
}
