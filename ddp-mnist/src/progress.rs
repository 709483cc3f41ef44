//! How far a training has come, and the checkpoint that holds all of it.

use crate::args::Args;
use anyhow::Result;
use report::say;
use serde::{Deserialize, Serialize};
use std::path::Path;
use tch::nn::VarStore;
use tch_parallel::checkpoint::{Training, check_destination};
use tch_parallel::distributed::ProcessGroup;
use tch_parallel::optim::Sgd;

/// How far a training has come.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub struct Progress {
    /// The epoch to continue with.
    pub epoch: u64,
    /// The steps of that epoch that are done.
    pub step: usize,
    /// The samples that all ranks together have had in it.
    pub samples: usize,
}

/// Where the training is saved, and from where it is resumed.
pub struct Checkpoint<'a> {
    args: &'a Args,
    group: &'a ProcessGroup,
}

impl<'a> Checkpoint<'a> {
    /// Refuses a file that could not be written.
    pub fn new(args: &'a Args, group: &'a ProcessGroup) -> Result<Self> {
        if let (Some(file), 0) = (&args.checkpoint, group.rank()) {
            check_destination(file)?;
        }
        Ok(Checkpoint { args, group })
    }

    // ANCHOR: resume
    /// Restores the training that `--resume` asks for, if any. A collective.
    pub fn resume(&self, vs: &mut VarStore, optimizer: &mut Sgd) -> Result<Progress> {
        let Some(resume) = &self.args.resume else { return Ok(Progress::default()) };
        // The command line requires one for `auto`.
        let own = self.args.checkpoint.as_deref().unwrap_or(Path::new(""));
        let Some(file) = resume.file(own, self.group)? else { return Ok(Progress::default()) };
        let progress: Progress = training(vs, optimizer).load(file, self.group)?.progress;
        let Progress { epoch, step, .. } = progress;
        say(self.group, format!("resumed from {}: epoch {epoch}, step {step}", file.display()));
        Ok(progress)
    }
    // ANCHOR_END: resume

    /// Whether to save the training after this step of an epoch: every `--save-every` steps.
    pub fn is_due(&self, progress: Progress) -> bool {
        self.args.save_every.is_some_and(|every| progress.step.is_multiple_of(every))
    }

    /// Saves the training, if it has a `--checkpoint`. A collective.
    pub fn save(&self, vs: &mut VarStore, optimizer: &mut Sgd, progress: Progress) -> Result<()> {
        match &self.args.checkpoint {
            Some(file) => Ok(training(vs, optimizer).save(file, &progress, self.group)?),
            None => Ok(()),
        }
    }
}

fn training<'a>(vs: &'a mut VarStore, optimizer: &'a mut Sgd) -> Training<'a> {
    Training { architecture: "mlp", vs, optimizer, scheduler: None, scaler: None }
}
