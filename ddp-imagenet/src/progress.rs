//! How far a training has come.

use crate::meter::Meters;
use serde::{Deserialize, Serialize};

/// What a checkpoint says of a training beside the state of its parts.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Progress {
    /// The name of the network, since another one's weights are of no use.
    pub arch: String,
    /// The epoch to go on with.
    pub epoch: u64,
    /// How many batches of that epoch have been trained with.
    pub step: usize,
    /// How many it has: with another batch size or number of ranks there would be no going on in
    /// the middle of it.
    pub steps: usize,
    /// The best Acc@1 of any epoch.
    pub best_acc1: f64,
    /// What was measured in that epoch so far.
    pub meters: Meters,
}
