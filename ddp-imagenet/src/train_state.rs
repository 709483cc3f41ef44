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
        for _epoch in 0..args.start_epoch.min(args.recipe.epochs) {
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
    state: &mut TrainState,
    path: &Path,
    run: &mut Run<'_, 3>,
    best_accuracy: f64,
    group: &ProcessGroup,
) -> Result<()> {
    // A loss that is not finite ends the training before it is saved.
    run.wait()?;
    let (progress, meters) = (run.progress(), group.all_gather_object(run.pass().meters())?);
    Ok(state.as_training().save(path, &Saved { progress, best_accuracy, meters }, group)?)
}

/// Continues where the flags say, with any number of ranks and any batch size. Returns how far the
/// training has come, what it has measured of its epoch, and the best accuracy so far. Refuses what
/// [`save`] did not write for the same kind of training. A collective.
pub fn resume(
    state: &mut TrainState,
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
    let Resumed { progress: saved, generators } = state.as_training().load(path, group)?;
    let Saved { progress, best_accuracy, meters } = saved;
    // With another number of ranks, the epoch's averages start anew, unless all ranks have the same: virtual ranks do.
    let are_alike = meters.windows(2).all(|pair| pair[0].numbers == pair[1].numbers);
    let has_own = args.virtual_ranks.is_some() && are_alike || meters.len() == group.world_size();
    let meters = meters.into_iter().cycle().nth(group.rank()).filter(|_| has_own);
    let Progress { epoch, step, .. } = progress;
    say(group, format!("=> loaded checkpoint '{}' (epoch {epoch}, step {step})", path.display()));
    if generators != Generators::Restored {
        say(group, format!("=> not bit-identical to an uninterrupted run: {generators}"));
    }
    Ok((progress, meters.unwrap_or_default(), best_accuracy))
}

#[cfg(test)]
mod tests {
    use super::*;
    use report::parse_flags;
    use tch::{Device, Kind, nn::Init};
    use tch_parallel::optim::lr_scheduler::Scheduler;

    /// A training in fp16 of this weight.
    fn begin(weight: f64) -> TrainState {
        let args: TrainArgs = parse_flags(["--amp=fp16"]).unwrap();
        let vs = VarStore::new(Device::Cpu);
        let _ = vs.root().var("weight", &[1], Init::Const(weight));
        TrainState::new(&args, vs, None).unwrap()
    }

    /// An epoch of one step, which an infinite gradient makes the scaler skip.
    fn train(state: &mut TrainState, gradient: f64) {
        let loss = state.vs.variables()["weight"].sum(Kind::Float) * gradient;
        state.optimizer.zero_grad().unwrap();
        state.scaler.scale(&loss).unwrap().backward();
        state.scaler.step(&mut *state.optimizer).unwrap();
        state.scaler.update().unwrap();
        state.scheduler.step(&mut *state.optimizer).unwrap();
    }

    /// How a training goes on from such parts is tested in the library.
    #[test]
    fn every_part_of_a_training_comes_back() {
        // No launcher starts unit tests.
        let group = ProcessGroup::from_env().unwrap();
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("checkpoint.safetensors");
        let mut saved = begin(1.0);
        // One makes the scale smaller, the other gives the weight a momentum.
        train(&mut saved, f64::INFINITY);
        train(&mut saved, 1.0);
        saved.as_training().save(&path, &(), &group).unwrap();

        let mut loaded = begin(2.0);
        let Resumed { progress: (), .. } = loaded.as_training().load(&path, &group).unwrap();
        let parts = |state: &TrainState| {
            let optimizer = state.optimizer.state_dict().unwrap();
            let (scheduler, scaler) = (state.scheduler.state_dict(), state.scaler.state_dict());
            (state.vs.trainable_variables(), optimizer, scheduler.unwrap(), scaler.unwrap())
        };
        assert_eq!(parts(&loaded), parts(&saved));
    }
}
