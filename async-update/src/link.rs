//! Point-to-point exchanges whose bytes are counted.

use crate::model::PARAMETERS;
use anyhow::ensure;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use tch::Tensor;
use tch_parallel::{Result, distributed::ProcessGroup};

/// The bytes that all links of this process have sent and received. A server has a link, and a thread, for each worker.
static SENT: AtomicUsize = AtomicUsize::new(0);
static RECEIVED: AtomicUsize = AtomicUsize::new(0);

#[derive(Debug, Clone, Copy, serde::Serialize)]
pub struct Traffic {
    pub sent: usize,
    pub received: usize,
}

impl Traffic {
    /// The traffic of this process. `None` if it has none over links: it exchanges nothing, or
    /// leaves that to a library's collective, whose bytes cannot be counted.
    pub fn of_this_process() -> Option<Traffic> {
        let traffic = Traffic { sent: SENT.load(Relaxed), received: RECEIVED.load(Relaxed) };
        (traffic.sent + traffic.received > 0).then_some(traffic)
    }

    /// In words, and in units of the article's K, the size of all parameters.
    pub fn per_step(self, rank: usize, steps: usize) -> String {
        let Traffic { sent, received } = self;
        let model = PARAMETERS * size_of::<f32>();
        let [out, back] = [sent, received].map(|bytes| bytes as f64 / (model * steps) as f64);
        format!(
            "rank {rank} sent {sent} bytes and received {received}, in each of {steps} steps {out:.4} K and {back:.4} K, with K = {model} bytes"
        )
    }
}

/// A group in which this rank sends and receives.
pub struct Link {
    pub group: ProcessGroup,
}

impl Link {
    /// Among the ranks of a job, of which there must be at least two.
    pub fn between_ranks(group: ProcessGroup) -> anyhow::Result<Link> {
        ensure!(
            group.world_size() > 1,
            "a world of 1 has nobody to exchange with; start at least 2 ranks, as with `cargo launch -n 2 async-update -- …`"
        );
        Ok(Link { group })
    }

    /// Sends a tensor to rank `dst`, which must receive one of this shape.
    pub fn send(&self, tensor: &Tensor, dst: usize) -> Result<()> {
        SENT.fetch_add(bytes(tensor), Relaxed);
        self.group.send(tensor, dst)
    }

    /// Fills a tensor with what rank `src` sends.
    pub fn recv(&self, tensor: &mut Tensor, src: usize) -> Result<()> {
        RECEIVED.fetch_add(bytes(tensor), Relaxed);
        self.group.recv(tensor, src)
    }

    // ANCHOR: exchange
    /// Sends to one rank and receives from another at the same time. In a ring everybody does
    /// this at once; if all sent first, and a send waited for its receiver, nobody would receive.
    pub fn exchange(&self, send: Tensor, dst: usize, recv: Tensor, src: usize) -> Result<Tensor> {
        SENT.fetch_add(bytes(&send), Relaxed);
        RECEIVED.fetch_add(bytes(&recv), Relaxed);
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
