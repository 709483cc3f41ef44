//! Stale synchronous parallel: asynchronous, but nobody runs far ahead (Ho 2013).

use super::AsyncPs;
use crate::server::{Gate, Shards};

/// A worker of [`AsyncPs`] that reads before every batch and pushes after it: only then is the
/// staleness of its gradients bounded by what [`Gate`] says.
pub fn ssp(shards: Shards, lr: f64) -> AsyncPs {
    AsyncPs::new(shards, lr, 1, 1)
}

/// Where the server holds a worker up that leads the slowest by more than `staleness` updates.
pub fn ssp_gate(staleness: usize) -> Gate {
    Gate::Stale(staleness)
}
