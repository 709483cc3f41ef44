//! The state of a training: all that a checkpoint holds.

use crate::args::TrainArgs;
use anyhow::Result;
use report::{Meters, Progress, Run, say};
use serde::{Deserialize, Serialize};
use std::path::Path;
use tch::nn::VarStore;
use tch_parallel::checkpoint::{AsTraining, Generators, Resumed, Training};
use tch_parallel::optim::lr_scheduler::LrScheduler;
use tch_parallel::{amp::GradScaler, distributed::ProcessGroup, optim::Optimizer};

/// The parts of a training.
pub struct TrainState {
    /// The network's name: another network's weights do not fit.
    pub arch: String,
    pub vs: VarStore,
    pub optimizer: Box<dyn Optimizer>,
    pub scheduler: LrScheduler,
    pub scaler: GradScaler,
}

/// The program's own part of a checkpoint.
#[derive(Debug, Serialize, Deserialize)]
struct Saved {
    progress: Progress,
    best_accuracy: f64,
    /// Of the present epoch so far, by rank: each has seen different images.
    meters: Vec<Meters<3>>,
}

impl TrainState {
    // ANCHOR: state
    /// The beginning of a training, or of its epoch `--start-epoch`. Without a group, nothing is sharded.
    pub fn new(args: &TrainArgs, vs: VarStore, group: Option<&ProcessGroup>) -> Result<Self> {
        let mut optimizer = args.recipe.optimizer(&vs, group)?;
        let mut scheduler = LrScheduler::new(&mut *optimizer, args.recipe.schedule()?)?;
        for _epoch in 0..args.start_epoch {
            scheduler.step(&mut *optimizer)?;
        }
        let (arch, scaler) = (args.arch.to_string(), GradScaler::new(args.recipe.scaler())?);
        Ok(TrainState { arch, vs, optimizer, scheduler, scaler })
    }
    // ANCHOR_END: state
}

impl AsTraining for TrainState {
    fn as_training(&mut self) -> Training<'_> {
        Training {
            architecture: &self.arch,
            vs: &mut self.vs,
            optimizer: &mut *self.optimizer,
            scheduler: Some(&mut self.scheduler),
            scaler: Some(&mut self.scaler),
        }
    }
}

/// Writes everything, and the random generators of all ranks. A collective.
pub fn save(
    training: &mut Training<'_>,
    path: &Path,
    run: &mut Run<'_, 3>,
    best_accuracy: f64,
    group: &ProcessGroup,
) -> Result<()> {
    // A loss that is not finite ends the training before it is saved.
    run.wait()?;
    let meters = group.all_gather_object(run.pass().meters())?;
    Ok(training.save(path, &Saved { progress: run.progress(), best_accuracy, meters }, group)?)
}

/// Continues where the flags say, with any number of ranks and any batch size. Returns how far the
/// training has come, what it has measured of its epoch, and the best accuracy so far. Refuses what
/// [`save`] did not write for the same kind of training. A collective.
pub fn resume(
    training: &mut Training<'_>,
    args: &TrainArgs,
    group: &ProcessGroup,
) -> Result<(Progress, Meters<3>, f64)> {
    let own = args.checkpoint();
    let file = args.resume.as_ref().map_or(Ok(None), |resume| resume.file(&own, group))?;
    let Some(path) = file else {
        let progress = Progress { epoch: args.start_epoch, ..Default::default() };
        return Ok((progress, Meters::default(), 0.0));
    };
    say(group, format!("=> loading checkpoint '{}'", path.display()));
    let Resumed { progress: saved, generators } = training.load(path, group)?;
    let Saved { progress, best_accuracy, meters } = saved;
    // With another number of ranks, the epoch's averages start anew.
    let has_own = meters.len() == group.world_size();
    let meters = if has_own { meters[group.rank()] } else { Meters::default() };
    let Progress { epoch, step, .. } = progress;
    say(group, format!("=> loaded checkpoint '{}' (epoch {epoch}, step {step})", path.display()));
    if generators != Generators::Restored {
        say(group, format!("=> not bit-identical to an uninterrupted run: {generators}"));
    }
    Ok((progress, meters, best_accuracy))
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
        let arch = "linear".into();
        (TrainState { arch, vs, optimizer, scheduler, scaler }, model)
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
        (weights, state.optimizer.state_dict().unwrap(), state.scaler.state_dict().unwrap())
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
        whole.as_training().save(&path, &(), &group).unwrap();
        train(&mut whole, &model, 10..15);

        let (mut resumed, model) = begin();
        let Resumed { progress: (), generators } =
            resumed.as_training().load(&path, &group).unwrap();
        assert_eq!(generators, Generators::Restored);
        train(&mut resumed, &model, 10..15);
        assert_eq!(outcome(&resumed), outcome(&whole));
    }
}
