//! What a training changes as it goes on: all that a checkpoint holds.

use crate::meter::Meters;
use anyhow::{Result, ensure};
use serde::{Deserialize, Serialize};
use std::path::Path;
use tch::nn::VarStore;
use tch_parallel::amp::GradScaler;
use tch_parallel::checkpoint::{Generators, Resumed, Training};
use tch_parallel::distributed::ProcessGroup;
use tch_parallel::optim::Optimizer;
use tch_parallel::optim::lr_scheduler::LrScheduler;

/// The parts of a training, and how far it has come.
pub struct TrainState {
    /// The network's name, since another one's weights are of no use.
    pub arch: String,
    pub vs: VarStore,
    pub optimizer: Box<dyn Optimizer>,
    pub scheduler: LrScheduler,
    pub scaler: GradScaler,
    pub progress: Progress,
    /// What was measured in the present epoch so far.
    pub meters: Meters,
}

/// How far a training has come.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// The epoch to go on with.
    pub epoch: u64,
    /// How many batches of that epoch have been trained with.
    pub step: usize,
    /// How many it has.
    pub steps: usize,
    /// The best share of right answers after an epoch so far.
    pub best_accuracy: f64,
}

/// What stands in the file for the program itself.
#[derive(Debug, Serialize, Deserialize)]
struct Saved {
    progress: Progress,
    /// By rank: each has seen other images.
    meters: Vec<Meters>,
}

impl TrainState {
    /// Writes everything, and the random generators of all ranks. A collective.
    pub fn save(&mut self, path: &Path, group: &ProcessGroup) -> Result<()> {
        let meters = group.all_gather_object(&self.meters)?;
        let saved = Saved { progress: self.progress, meters };
        Ok(self.training().save(path, &saved, group)?)
    }

    /// Goes on where the file was written. A collective.
    ///
    /// # Errors
    /// For a file that [`save`](Self::save) has not written for such a training, and for one that
    /// was written in the middle of an epoch of another length.
    pub fn resume(&mut self, path: &Path, group: &ProcessGroup) -> Result<Generators> {
        let steps = self.progress.steps;
        let Resumed { progress: saved, generators } = self.training().load::<Saved>(path, group)?;
        let Saved { progress, meters } = saved;
        ensure!(
            progress.step == 0 || progress.steps == steps,
            "{}: saved after {} of {} batches of epoch {}; expected an epoch of {steps}, as this \
             run has: take the --batch-size, --steps and number of ranks that it was saved with",
            path.display(),
            progress.step,
            progress.steps,
            progress.epoch
        );
        self.progress = Progress { steps, ..progress };
        // Another number of ranks begins the epoch's averages anew.
        if meters.len() == group.world_size() {
            self.meters = meters[group.rank()];
        }
        Ok(generators)
    }

    /// Goes on to the next epoch; whether none has been as good as this one.
    pub fn end_epoch(&mut self, accuracy: f64) -> bool {
        let Progress { epoch, best_accuracy, steps, .. } = self.progress;
        let best = accuracy > best_accuracy;
        let best_accuracy = best_accuracy.max(accuracy);
        self.progress = Progress { epoch: epoch + 1, step: 0, steps, best_accuracy };
        self.meters = Meters::default();
        best
    }

    fn training(&mut self) -> Training<'_> {
        Training {
            architecture: &self.arch,
            vs: &mut self.vs,
            optimizer: &mut *self.optimizer,
            scheduler: Some(&mut self.scheduler),
            scaler: Some(&mut self.scaler),
        }
    }
}
