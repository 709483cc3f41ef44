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
}

/// How far a training has come.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// The epoch to go on with.
    pub epoch: u64,
    /// How many batches of that epoch have been trained with.
    pub step: usize,
    /// How many it has.
    pub steps: usize,
    /// The best share of right answers after an epoch so far.
    pub best_accuracy: f64,
    /// What was measured in that epoch so far.
    pub meters: Meters,
}

impl Progress {
    /// Goes on to the next epoch; whether none has been as good as this one.
    pub fn end_epoch(&mut self, accuracy: f64) -> bool {
        let best = accuracy > self.best_accuracy;
        self.best_accuracy = self.best_accuracy.max(accuracy);
        self.epoch += 1;
        self.step = 0;
        self.meters = Meters::default();
        best
    }
}

impl TrainState {
    /// Writes everything, and the random generators of all ranks. A collective.
    pub fn save(&mut self, path: &Path, group: &ProcessGroup) -> Result<()> {
        let progress = self.progress.clone();
        Ok(self.training().save(path, &progress, group)?)
    }

    /// Goes on where the file was written. A collective.
    ///
    /// # Errors
    /// For a file that [`save`](Self::save) has not written for such a training, and for one that
    /// was written in the middle of an epoch of another length.
    pub fn resume(&mut self, path: &Path, group: &ProcessGroup) -> Result<Generators> {
        let steps = self.progress.steps;
        let Resumed { progress, generators } = self.training().load::<Progress>(path, group)?;
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
        Ok(generators)
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
