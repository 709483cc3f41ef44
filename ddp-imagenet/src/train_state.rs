//! The state of a training: all that a checkpoint holds.

use crate::meter::Meters;
use anyhow::Result;
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
    /// The network's name: another network's weights do not fit.
    pub arch: String,
    pub vs: VarStore,
    pub optimizer: Box<dyn Optimizer>,
    pub scheduler: LrScheduler,
    pub scaler: GradScaler,
    pub progress: Progress,
    /// The averages of the present epoch so far.
    pub meters: Meters,
}

/// How far a training has come.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// The epoch to continue with.
    pub epoch: u64,
    /// Batches of that epoch that are done.
    pub step: usize,
    /// Images that all ranks together have had in it.
    pub images: usize,
    /// The best validation accuracy so far.
    pub best_accuracy: f64,
}

/// The program's own part of a checkpoint.
#[derive(Debug, Serialize, Deserialize)]
struct Saved {
    progress: Progress,
    /// By rank: each has seen different images.
    meters: Vec<Meters>,
}

impl TrainState {
    /// Writes everything, and the random generators of all ranks. A collective.
    pub fn save(&mut self, path: &Path, group: &ProcessGroup) -> Result<()> {
        let meters = group.all_gather_object(&self.meters)?;
        let saved = Saved { progress: self.progress, meters };
        Ok(self.training().save(path, &saved, group)?)
    }

    /// Continues where the file was saved, with any number of ranks and any batch size. A
    /// collective.
    ///
    /// # Errors
    /// For a file that [`save`](Self::save) did not write for the same kind of training.
    pub fn resume(&mut self, path: &Path, group: &ProcessGroup) -> Result<Generators> {
        let Resumed { progress: Saved { progress, meters }, generators } =
            self.training().load(path, group)?;
        self.progress = progress;
        // With another number of ranks, the epoch's averages start anew.
        if meters.len() == group.world_size() {
            self.meters = meters[group.rank()];
        }
        Ok(generators)
    }

    /// Moves on to the next epoch. Returns whether this one was the best so far.
    pub fn end_epoch(&mut self, accuracy: f64) -> bool {
        let Progress { epoch, best_accuracy, .. } = self.progress;
        let best = accuracy > best_accuracy;
        let best_accuracy = best_accuracy.max(accuracy);
        self.progress = Progress { epoch: epoch + 1, best_accuracy, ..Default::default() };
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::ops::Range;
    use tch::nn::{self, Module};
    use tch::{Device, Kind, Tensor};
    use tch_parallel::amp::autocast;
    use tch_parallel::optim::lr_scheduler::{Schedule, StepLr};
    use tch_parallel::optim::{Sgd, SgdOptions};

    /// All weights are 0. The network is one without convolutions, whose backward pass in fp16 takes
    /// long on some processors.
    fn begin() -> (TrainState, nn::Linear) {
        let vs = VarStore::new(Device::Cpu);
        let zeros = nn::Init::Const(0.0);
        let config = nn::LinearConfig { ws_init: zeros, bs_init: Some(zeros), bias: true };
        let model = nn::linear(vs.root() / "fc", 6, 3, config);
        let options = SgdOptions { lr: 0.01, momentum: 0.9, ..Default::default() };
        let mut optimizer: Box<dyn Optimizer> = Box::new(Sgd::new(&vs, options).unwrap());
        let schedule: Box<dyn Schedule> = Box::new(StepLr::new(30));
        let scheduler = LrScheduler::new(&mut *optimizer, schedule).unwrap();
        let scaler = GradScaler::new(Default::default()).unwrap();
        let (progress, meters) = (Progress::default(), Meters::default());
        let arch = "linear".into();
        (TrainState { arch, vs, optimizer, scheduler, scaler, progress, meters }, model)
    }

    /// Whether each step in fp16 was made, or skipped because of an overflow.
    fn train(state: &mut TrainState, model: &nn::Linear, steps: Range<i64>) -> Vec<bool> {
        let step = |step: i64| {
            let xs = (Tensor::arange(12, (Kind::Float, Device::Cpu)) + step).sin() * 100.0;
            let loss = autocast(Device::Cpu, Some(Kind::Half), || {
                let labels = Tensor::from_slice(&[0i64, 1]);
                model.forward(&xs.view([2, 6])).cross_entropy_for_logits(&labels)
            });
            state.optimizer.zero_grad().unwrap();
            state.scaler.scale(&loss.unwrap()).unwrap().backward();
            let made = state.scaler.step(&mut *state.optimizer).unwrap();
            state.scaler.update().unwrap();
            made
        };
        steps.map(step).collect()
    }

    /// The weights to the last bit, the momentum, and the scale.
    fn outcome(state: &TrainState) -> impl PartialEq + std::fmt::Debug + use<> {
        let weights: Vec<_> = state.vs.trainable_variables().iter().map(Tensor::copy).collect();
        let momentum = state.optimizer.state_dict().unwrap();
        (weights, momentum, state.scaler.state_dict().unwrap())
    }

    #[test]
    fn a_training_in_fp16_goes_on_with_the_scale_that_it_had() {
        // No launcher starts unit tests.
        let group = ProcessGroup::from_env().unwrap();
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("checkpoint.safetensors");

        let (mut whole, model) = begin();
        let made = train(&mut whole, &model, 0..10);
        assert!(!made[0] && made[9], "the scale shrinks until the gradients fit: {made:?}");
        whole.save(&path, &group).unwrap();
        train(&mut whole, &model, 10..15);

        let (mut resumed, model) = begin();
        assert_eq!(resumed.resume(&path, &group).unwrap(), Generators::Restored);
        train(&mut resumed, &model, 10..15);
        assert_eq!(outcome(&resumed), outcome(&whole));
    }
}
