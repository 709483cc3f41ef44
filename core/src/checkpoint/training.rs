//! A whole training in a file: everything needed to continue it.

use super::contents::{self, Contents, write_together};
use super::layout::{GENERATORS, HEADER, MODEL, OPTIMIZER, take};
use super::random::{self, Generators};
use super::sharded::{Sharding, WRITER};
use super::weights;
use crate::amp::{GradScaler, GradScalerState};
use crate::distributed::{ProcessGroup, bucket_order, digest};
use crate::optim::lr_scheduler::{LrSchedulerState, Scheduler};
use crate::optim::{Optimizer, OptimizerState, ParamGroupState};
use crate::{Error, Result, check_file};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;
use std::path::Path;
use tch::{Tensor, nn::VarStore};
use tch_parallel_base::named_tensors::{Metadata, NamedTensors};
use tch_parallel_base::{error::with_causes, parameters::named_variables};

/// Replaces the header if the file could not be read.
const UNREADABLE: &str = "";

/// The parts of a training, borrowed to save or load them: PyTorch's "general checkpoint".
///
/// ```
/// use serde::{Deserialize, Serialize};
/// use tch::{Device, nn};
/// use tch_parallel::checkpoint::Training;
/// use tch_parallel::distributed::ProcessGroup;
/// use tch_parallel::optim::lr_scheduler::{LrScheduler, StepLr};
/// use tch_parallel::optim::{Optimizer, Sgd, SgdOptions};
///
/// /// What the program itself must know to go on.
/// #[derive(Serialize, Deserialize)]
/// struct Progress {
///     epoch: u64,
///     best_accuracy: f64,
/// }
///
/// let group = ProcessGroup::from_env()?;
/// let mut vs = nn::VarStore::new(Device::Cpu);
/// let model = nn::linear(vs.root() / "fc", 8, 3, Default::default());
/// let mut optimizer = Sgd::new(&vs, SgdOptions::default())?;
/// let mut scheduler = LrScheduler::new(&mut optimizer, StepLr::new(30))?;
///
/// # let directory = tempfile::tempdir().unwrap();
/// # let path = directory.path().join("checkpoint.safetensors");
/// let mut training = Training {
///     architecture: "linear",
///     vs: &mut vs,
///     optimizer: &mut optimizer,
///     scheduler: Some(&mut scheduler),
///     scaler: None,
/// };
/// training.save(&path, &Progress { epoch: 5, best_accuracy: 0.9 }, &group)?;
/// let resumed = training.load::<Progress>(&path, &group)?;
/// assert_eq!(resumed.progress.epoch, 5);
/// # Ok::<(), tch_parallel::Error>(())
/// ```
///
/// The file does not contain:
///
/// - buffers of ranks other than 0. Without `broadcast_buffers`, each rank has its own, and those
///   of the others are lost.
/// - the state of a communication hook: the errors and matrices of
///   [`PowerSgd`](crate::distributed::hooks::PowerSgd) and the step count of
///   [`PostLocalSgd`](crate::distributed::hooks::PostLocalSgd) start anew.
/// - what else a rank has of its own, such as parameters that DistributedDataParallel ignores, or weights between
///   two averages of post-local SGD: all ranks load rank 0's.
///
/// It contains the order of the gradients in DistributedDataParallel's buckets, which PyTorch's checkpoints do not:
/// with three ranks or more, it determines how sums are rounded. So wrap the model before [`load`](Self::load); a
/// training resumed on the same number of ranks then equals the uninterrupted one to the last bit.
///
/// In the file, the names of the model's variables start with `model.`, those of the optimizer's state with
/// `optimizer.`, those of the generators with `rng.`; the rest is JSON under `training`, in safetensors' `__metadata__`
/// or PyTorch's dict. [`checkpoint::load`](super::load) can take the weights from such a file, and so can Python:
///
/// ```python
/// saved = torch.load(path)  # or safetensors.torch.load_file(path)
/// model.load_state_dict({k[6:]: v for k, v in saved.items() if k.startswith("model.")})
/// ```
#[derive(Debug)]
pub struct Training<'a> {
    /// The model's name. A training of another model is refused even if the variables match.
    pub architecture: &'a str,
    /// The variables of the model.
    pub vs: &'a mut VarStore,
    /// The optimizer that trains them.
    pub optimizer: &'a mut dyn Optimizer,
    /// The scheduler of the learning rate, if there is one.
    pub scheduler: Option<&'a mut dyn Scheduler>,
    /// The gradient scaler, if there is one.
    pub scaler: Option<&'a mut GradScaler>,
}

/// Lends the parts of a training. Besides [`Training`], implement it for a struct of your own if the closure of
/// [`elastic::run`](crate::elastic::run) must call methods that `dyn Scheduler` lacks.
pub trait AsTraining {
    /// Borrows the parts.
    fn as_training(&mut self) -> Training<'_>;
}

impl AsTraining for Training<'_> {
    fn as_training(&mut self) -> Training<'_> {
        Training {
            architecture: self.architecture,
            vs: self.vs,
            optimizer: self.optimizer,
            scheduler: self.scheduler.as_mut().map(|it| &mut **it as &mut dyn Scheduler),
            scaler: self.scaler.as_deref_mut(),
        }
    }
}

/// What [`Training::load`] returns besides setting the parts of the training.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "it holds what the program needs to go on"]
pub struct Resumed<P> {
    /// The value passed to [`Training::save`].
    pub progress: P,
    /// Whether the random generators were restored too.
    pub generators: Generators,
}

/// Everything in a training that is not a tensor.
#[derive(Debug, Serialize, Deserialize)]
struct Header {
    architecture: String,
    world_size: usize,
    optimizer: String,
    param_groups: Vec<ParamGroupState>,
    scheduler: Option<LrSchedulerState>,
    scaler: Option<GradScalerState>,
    bucket_order: Option<Vec<String>>,
    progress: Value,
}

impl Training<'_> {
    /// Writes all parts, the state of every rank's random generators, and `progress`: whatever the program itself needs
    /// to continue (the epoch, the step in it, the best accuracy so far). A collective, like
    /// [`checkpoint::save`](super::save): the old file is kept until the new one is complete.
    ///
    /// # Errors
    /// On every rank, with the reason, if one could not write, or if `progress` could not be read back, such as a NaN.
    pub fn save<P: Serialize + DeserializeOwned>(
        &mut self,
        path: impl AsRef<Path>,
        progress: &P,
        group: &ProcessGroup,
    ) -> Result<()> {
        group.refuse_python("checkpoint::Training::save", 0..group.world_size())?;
        let sharding = Sharding::of(&named_variables(self.vs));
        sharding.check(group)?;
        self.optimizer.consolidate_state_dict(WRITER)?;
        let generators = random::gather(group)?;
        let contents = match group.rank() == WRITER || !sharding.is_empty() {
            true => self.contents(&sharding, progress, generators, group.world_size()),
            false => Ok(Contents::default()),
        };
        let is_sharded = !sharding.is_empty();
        write_together("checkpoint::Training::save", path.as_ref(), contents, is_sharded, group)
    }

    pub(super) fn contents<P: Serialize + DeserializeOwned>(
        &self,
        sharding: &Sharding,
        progress: &P,
        generators: Vec<(String, Tensor)>,
        world_size: usize,
    ) -> Result<Contents> {
        let optimizer = self.optimizer.state_dict()?;
        let scheduler = self.scheduler.as_ref().map(|scheduler| scheduler.state_dict());
        let json = serde_json::to_value(progress).map_err(not_json("progress"))?;
        P::deserialize(&json).map_err(not_json("progress"))?;
        let header = Header {
            architecture: self.architecture.into(),
            world_size,
            optimizer: optimizer.optimizer,
            param_groups: optimizer.param_groups,
            scheduler: scheduler.transpose()?,
            scaler: self.scaler.as_ref().map_or(Ok(None), |scaler| scaler.state_dict())?,
            bucket_order: bucket_order::state_dict(self.vs)?,
            progress: json,
        };
        let header =
            serde_json::to_string(&header).map_err(not_json("the state of the training"))?;
        let mut tensors = Vec::new();
        for (prefix, part) in [
            (MODEL, named_variables(self.vs)),
            (OPTIMIZER, optimizer.tensors),
            (GENERATORS, generators),
        ] {
            for (name, tensor) in part {
                tensors.push((format!("{prefix}{name}"), sharding.saved(&name, tensor)?));
            }
        }
        Ok(Contents { tensors, metadata: Metadata::from([(HEADER.into(), header)]) })
    }

    /// Restores all parts, and this rank's random generators, from a file that [`save`](Self::save)
    /// has written. A collective: each rank reads the file, so every host must have it.
    ///
    /// Build the parts as for the saved training. Afterwards the optimizer has the saved options, as in PyTorch.
    ///
    /// # Errors
    /// [`Error::Format`] for a truncated file, for one with weights only, or for a training with another architecture,
    /// optimizer, schedule or type of `progress`. Every rank gets the error, with the reason, if one rank fails or if
    /// ranks have read different files. Do not continue the training then: parts of it may have been set.
    pub fn load<P: DeserializeOwned>(
        &mut self,
        path: impl AsRef<Path>,
        group: &ProcessGroup,
    ) -> Result<Resumed<P>> {
        group.refuse_python("checkpoint::Training::load", 0..group.world_size())?;
        let path = path.as_ref();
        let read = read(path, &Sharding::of(&named_variables(self.vs)));
        // Progress can be larger than the store accepts.
        let header = read.as_ref().map_or(UNREADABLE.to_owned(), |(_, header)| digest(header));
        let theirs = group.compare_with_rank_0("checkpoint::Training::load", &header)?;
        let rank_0_failed = theirs.as_deref() == Some(UNREADABLE);
        let other_file = theirs.is_some_and(|theirs| theirs != header);
        let loaded = read.and_then(|(tensors, header)| {
            let found = "not the training that rank 0 has read";
            check_file(!other_file, path, found, "the same file on every host")?;
            self.apply(path, tensors, &header, group)
        });
        // Report rank 0's reason; another one would only distract from it.
        let own_error = loaded.as_ref().err().filter(|_| !rank_0_failed);
        let objection = own_error.map(|error| with_causes(error));
        let agreed = group.agree("checkpoint::Training::load", objection.as_deref());
        match rank_0_failed {
            true => agreed.and(loaded),
            false => loaded.and_then(|resumed| agreed.map(|()| resumed)),
        }
    }

    /// Sets all parts. `path` is where they come from, for errors.
    pub(super) fn apply<P: DeserializeOwned>(
        &mut self,
        path: &Path,
        mut tensors: NamedTensors,
        header: &str,
        group: &ProcessGroup,
    ) -> Result<Resumed<P>> {
        let header: Header = serde_json::from_str(header).map_err(|error| {
            let found = format!("a training in an unknown format ({error})");
            Error::format(path, found, "one that this program saved")
        })?;
        let found = format!("a training of {}", header.architecture);
        let expected = format!("a training of {}, which is this model", self.architecture);
        check_file(header.architecture == self.architecture, path, found, expected)?;
        let progress = P::deserialize(&header.progress).map_err(|error| {
            let found = format!("progress of another type ({error})");
            Error::format(path, found, "that of this program")
        })?;
        let scaled = self.scaler.as_ref().map_or(Ok(None), |scaler| scaler.state_dict())?;
        for (what, saved, here) in [
            ("a learning-rate schedule", header.scheduler.is_some(), self.scheduler.is_some()),
            ("a gradient scaler", header.scaler.is_some(), scaled.is_some()),
        ] {
            let with = |is_there| format!("{} {what}", if is_there { "with" } else { "without" });
            let expected = format!("one {}, as this one is", with(here));
            check_file(saved == here, path, format!("a training {}", with(saved)), expected)?;
        }

        let variables = self.vs.variables();
        let saved = take(&mut tensors, MODEL);
        weights::check(path, &variables, &saved)?;
        let optimizer = OptimizerState {
            optimizer: header.optimizer,
            param_groups: header.param_groups,
            tensors: take(&mut tensors, OPTIMIZER).into_iter().collect(),
        };
        self.optimizer.load_state_dict(&optimizer).map_err(in_file(path))?;
        if let (Some(scheduler), Some(state)) = (&mut self.scheduler, &header.scheduler) {
            scheduler.load_state_dict(state).map_err(in_file(path))?;
        }
        if let (Some(scaler), Some(state)) = (&mut self.scaler, &header.scaler) {
            scaler.load_state_dict(state);
        }
        weights::assign(variables, &saved)?;
        if let Some(order) = &header.bucket_order {
            bucket_order::load_state_dict(self.vs, order)?;
        }
        let states = take(&mut tensors, GENERATORS);
        let generators = random::restore(group, header.world_size, &states)?;
        Ok(Resumed { progress, generators })
    }
}

fn read(path: &Path, sharding: &Sharding) -> Result<(NamedTensors, String)> {
    let (tensors, mut metadata) = contents::read(path, sharding)?;
    let header = metadata.remove(HEADER).ok_or_else(|| {
        let expected = "a whole training; to start one from these weights, use `checkpoint::load`";
        Error::format(path, "weights only", expected)
    })?;
    Ok((tensors, header))
}

fn not_json(what: &'static str) -> impl FnOnce(serde_json::Error) -> Error {
    move |error| {
        let found = format!("not readable after writing ({error})");
        let expected =
            "made of what JSON supports: finite numbers, text, lists, maps with text as keys";
        Error::argument(what, found, expected)
    }
}

/// Names the file that held the refused state.
fn in_file(path: &Path) -> impl FnOnce(Error) -> Error {
    move |error| match error {
        Error::Argument { what, found, expected } => {
            Error::format(path, format!("{what} is {found}"), expected)
        }
        other => other,
    }
}

#[cfg(test)]
mod tests;
