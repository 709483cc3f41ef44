//! The checkpoint that holds a whole training.

use crate::args::Args;
use anyhow::{Result, ensure};
use report::{Progress, Run, say};
use std::path::{Path, PathBuf, absolute};
use tch::nn::VarStore;
use tch_parallel::checkpoint::{Training, check_destination};
use tch_parallel::{distributed::ProcessGroup, optim::Optimizer};

/// Where the training is saved, and from where it is resumed.
pub struct Checkpoint<'a> {
    args: &'a Args,
    group: &'a ProcessGroup,
}

impl<'a> Checkpoint<'a> {
    /// Refuses a file that could not be written, or that `--save` would replace.
    pub fn new(args: &'a Args, group: &'a ProcessGroup) -> Result<Self> {
        let absolute = |file: &PathBuf| absolute(file).ok();
        let is_replaced =
            !args.no_save && args.checkpoint.as_ref().and_then(absolute) == absolute(&args.save);
        ensure!(!is_replaced, "--checkpoint and --save are both {}", args.save.display());
        if let (Some(file), 0) = (&args.checkpoint, group.rank()) {
            check_destination(file)?;
        }
        Ok(Checkpoint { args, group })
    }

    // ANCHOR: resume
    /// Restores the training that `--resume` asks for, if any. A collective.
    pub fn resume(&self, vs: &mut VarStore, optimizer: &mut dyn Optimizer) -> Result<Progress> {
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

    /// Saves the training every `--save-every` steps; after the last one of an epoch comes the
    /// checkpoint of all of it. A collective.
    pub fn save_if_due(
        &self,
        vs: &mut VarStore,
        optimizer: &mut dyn Optimizer,
        run: &mut Run<'_, 1>,
    ) -> Result<()> {
        let progress = run.progress();
        if !run.is_mid_epoch() || !self.is_due(progress) {
            return Ok(());
        }
        // A loss that is not finite ends the training before it is saved.
        run.wait()?;
        self.save(vs, optimizer, progress)
    }

    /// Whether a training that has come so far is saved.
    pub fn is_due(&self, Progress { step, .. }: Progress) -> bool {
        step == 0 || self.args.save_every.is_some_and(|every| step.is_multiple_of(every))
    }

    /// Saves the training, if it has a `--checkpoint`. A collective.
    pub fn save(
        &self,
        vs: &mut VarStore,
        optimizer: &mut dyn Optimizer,
        progress: Progress,
    ) -> Result<()> {
        let Some(file) = &self.args.checkpoint else { return Ok(()) };
        Ok(training(vs, optimizer).save(file, &progress, self.group)?)
    }
}

/// All that is saved, or that a new rank takes from another.
pub fn training<'a>(vs: &'a mut VarStore, optimizer: &'a mut dyn Optimizer) -> Training<'a> {
    Training { architecture: "mlp", vs, optimizer, scheduler: None, scaler: None }
}
