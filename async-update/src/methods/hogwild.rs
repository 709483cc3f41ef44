//! Hogwild!: threads of one process on shared parameters, without a lock (Niu 2011).

use super::Method;
use crate::events::{Update, now};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use tch::Tensor;
use tch_parallel::Result;
use tch_parallel::hogwild::AtomicTensor;

/// What all threads have in common.
#[derive(Debug)]
pub struct SharedModel {
    theta: AtomicTensor,
    /// How many updates have been made to `theta`; those at work are not counted yet.
    version: AtomicUsize,
    /// How many batches are left; threads take them one by one.
    batches: AtomicUsize,
}

impl SharedModel {
    /// Takes over parameters, floats on the CPU, to which there is no other handle or view; else `None`.
    pub fn new(theta: Tensor, batches: usize) -> Option<SharedModel> {
        let (version, batches) = (AtomicUsize::new(0), AtomicUsize::new(batches));
        Some(SharedModel { theta: AtomicTensor::new(theta)?, version, batches })
    }

    /// Takes all batches away, so that every thread ends.
    pub fn stop(&self) {
        self.batches.store(0, Relaxed);
    }

    pub fn into_theta(self) -> Tensor {
        self.theta.into_tensor()
    }
}

/// Each thread copies θ, computes a gradient there, and subtracts it from what θ has become
/// meanwhile, element by element, while the others do the same.
pub struct Hogwild<'a> {
    shared: &'a SharedModel,
    lr: f64,
    thread: usize,
    /// The version that this thread has read last; of the elements some may be newer.
    read: usize,
    /// What this thread has done, kept in memory: writing it down would make others stale.
    updates: Vec<Update>,
}

impl<'a> Hogwild<'a> {
    pub fn new(shared: &'a SharedModel, lr: f64, thread: usize) -> Self {
        Hogwild { shared, lr, thread, read: 0, updates: Vec::new() }
    }

    /// All updates of this thread. Their staleness counts what others had finished since it read θ.
    pub fn into_updates(self) -> Vec<Update> {
        self.updates
    }
}

// ANCHOR: hogwild
impl Method for Hogwild<'_> {
    fn next_batches(&mut self, theta: &mut Tensor) -> Result<usize> {
        let take = |left: usize| left.checked_sub(1);
        if self.shared.batches.fetch_update(Relaxed, Relaxed, take).is_err() {
            return Ok(0);
        }
        self.read = self.shared.version.load(Relaxed);
        *theta = self.shared.theta.load();
        Ok(1)
    }

    fn after_batch(&mut self, _theta: &mut Tensor, gradient: Tensor) -> Result<()> {
        self.shared.theta.fetch_sub_scaled(&gradient, self.lr as f32);
        let version = self.shared.version.fetch_add(1, Relaxed);
        self.updates.push(Update {
            worker: self.thread,
            clock: self.updates.len(),
            staleness: version - self.read,
            version,
            at: now(),
        });
        Ok(())
    }
}
// ANCHOR_END: hogwild
