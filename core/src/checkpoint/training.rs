//! All that a training depends on, in a file.

use super::file::{self, GENERATORS, HEADER, MODEL, OPTIMIZER, take};
use super::random::{self, Generators};
use super::weights;
use crate::amp::{GradScaler, GradScalerState};
use crate::distributed::ProcessGroup;
use crate::named_tensors::{Metadata, NamedTensors};
use crate::optim::lr_scheduler::{LrScheduler, LrSchedulerState};
use crate::optim::{Optimizer, OptimizerState};
use crate::{Error, Result};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::path::Path;
use tch::nn::VarStore;

/// The rank that writes.
const WRITER: usize = 0;

/// In place of a header: it could not be read.
const UNREADABLE: &str = "";

/// The parts of a training, for as long as they are saved or loaded: PyTorch's "general checkpoint".
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
/// What is not in the file:
///
/// - buffers of other ranks than 0. With `broadcast_buffers` off, each rank has its own, and those of
///   the others are lost.
/// - the state of a communication hook: the errors and the matrices of
///   [`PowerSgd`](crate::distributed::hooks::PowerSgd) begin anew.
/// - DistributedDataParallel's buckets. It rebuilds them once, after its first backward pass, and
///   from three ranks on the order in which Gloo adds up depends on a gradient's place in its bucket.
///   So there a resumed training equals the uninterrupted one to the last bit only if the buckets are
///   rebuilt before its first step: make one forward and backward pass before [`load`](Self::load),
///   as `ddp-imagenet` does.
///
/// In the file, the names of the model's variables begin with `model.`, those of the optimizer's
/// state with `optimizer.`, those of the generators' with `rng.`, and `__metadata__["training"]` is
/// the rest as JSON. [`checkpoint::load`](super::load) takes the weights of such a file, and so does
/// Python:
///
/// ```python
/// saved = safetensors.torch.load_file(path)
/// model.load_state_dict({k[6:]: v for k, v in saved.items() if k.startswith("model.")})
/// ```
#[derive(Debug)]
pub struct Training<'a> {
    /// Names the model. A training of another one is not loaded, be its variables the same.
    pub architecture: &'a str,
    /// The variables of the model.
    pub vs: &'a mut VarStore,
    /// What trains them.
    pub optimizer: &'a mut dyn Optimizer,
    /// What changes the learning rate, if anything does.
    pub scheduler: Option<&'a mut LrScheduler>,
    /// What scales gradients, if anything does.
    pub scaler: Option<&'a mut GradScaler>,
}

/// What [`Training::load`] has found beside the parts of the training.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "it holds what the program needs to go on"]
pub struct Resumed<P> {
    /// What the program had passed to [`Training::save`].
    pub progress: P,
    /// Whether the random generators go on as well.
    pub generators: Generators,
}

/// What of a training is not tensors.
#[derive(Debug, Serialize, Deserialize)]
struct Header {
    architecture: String,
    world_size: usize,
    optimizer: String,
    optimizer_options: Value,
    scheduler: Option<LrSchedulerState>,
    scaler: Option<GradScalerState>,
    progress: Value,
}

impl Training<'_> {
    /// Writes all parts, the state of every rank's random generators, and `progress`: whatever the
    /// program must know itself to go on (the epoch, the step in it, the best accuracy so far). A
    /// collective, like [`checkpoint::save`](super::save): rank 0 writes, and the old file is there
    /// until the new one is whole.
    ///
    /// # Errors
    /// On every rank, with the reason, if rank 0 could not write; and for a `progress` that could not
    /// be read again, since JSON knows neither NaN nor infinity.
    pub fn save<P: Serialize + DeserializeOwned>(
        &mut self,
        path: impl AsRef<Path>,
        progress: &P,
        group: &ProcessGroup,
    ) -> Result<()> {
        self.optimizer.consolidate_state_dict(WRITER)?;
        let generators = random::gather(group)?;
        let written = match group.rank() {
            WRITER => self.write(path.as_ref(), progress, generators, group.world_size()),
            _ => Ok(()),
        };
        let objection = written.as_ref().err().map(Error::to_string);
        let agreed = group.agree("checkpoint::Training::save", objection.as_deref());
        written.and(agreed)
    }

    fn write<P: Serialize + DeserializeOwned>(
        &self,
        path: &Path,
        progress: &P,
        generators: Vec<(String, tch::Tensor)>,
        world_size: usize,
    ) -> Result<()> {
        let optimizer = self.optimizer.state_dict()?;
        let header = Header {
            architecture: self.architecture.into(),
            world_size,
            optimizer: optimizer.optimizer,
            optimizer_options: optimizer.options,
            scheduler: self.scheduler.as_ref().map(|scheduler| scheduler.state_dict()),
            scaler: self.scaler.as_ref().map_or(Ok(None), |scaler| scaler.state_dict())?,
            progress: to_json(progress)?,
        };
        let header =
            serde_json::to_string(&header).map_err(not_json("the state of the training"))?;
        let parts = [
            (MODEL, self.vs.variables().into_iter().collect()),
            (OPTIMIZER, optimizer.tensors),
            (GENERATORS, generators),
        ];
        let tensors = parts
            .into_iter()
            .flat_map(|(prefix, part): (_, Vec<_>)| {
                part.into_iter().map(move |(name, tensor)| (format!("{prefix}{name}"), tensor))
            })
            .collect();
        file::write(path, &tensors, Some(Metadata::from([(HEADER.into(), header)])))
    }

    /// Sets all parts, and this rank's random generators, to what [`save`](Self::save) has written. A
    /// collective: each rank reads the file, so each host must have it.
    ///
    /// The parts must be built as they were for the training that was saved. After it, the optimizer
    /// has the options that it was saved with, as in PyTorch.
    ///
    /// # Errors
    /// [`Error::Format`] for a file that is cut off, that holds weights alone, or a training of another
    /// architecture, of another optimizer or schedule, or with another `progress`; on every rank, with
    /// the reason, if it fails on one or if they have read different files. Do not go on with the
    /// training then: a part of it may have been set.
    pub fn load<P: DeserializeOwned>(
        &mut self,
        path: impl AsRef<Path>,
        group: &ProcessGroup,
    ) -> Result<Resumed<P>> {
        let path = path.as_ref();
        let read = read(path);
        let header = read.as_ref().map_or(UNREADABLE, |(_, header)| header.as_str());
        let theirs = group.compare_with_rank_0("checkpoint::Training::load", header)?;
        let rank_0_failed = theirs.as_deref() == Some(UNREADABLE);
        let other_file = theirs.is_some_and(|theirs| theirs != header);
        let loaded = match read {
            Ok(_) if other_file => Err(Error::Format {
                path: path.into(),
                found: "not the training that rank 0 has found".into(),
                expected: "the same file on every host".into(),
            }),
            Ok((tensors, header)) => self.apply(path, tensors, &header, group),
            Err(error) => Err(error),
        };
        // Rank 0's reason is the one to be told; another one would only compete with it.
        let own_error = loaded.as_ref().err().filter(|_| !rank_0_failed);
        let objection = own_error.map(Error::to_string);
        let agreed = group.agree("checkpoint::Training::load", objection.as_deref());
        match rank_0_failed {
            true => agreed.and(loaded),
            false => loaded.and_then(|resumed| agreed.map(|()| resumed)),
        }
    }

    fn apply<P: DeserializeOwned>(
        &mut self,
        path: &Path,
        mut tensors: NamedTensors,
        header: &str,
        group: &ProcessGroup,
    ) -> Result<Resumed<P>> {
        let refuse = |found: String, expected: String| {
            Err(Error::Format { path: path.into(), found, expected })
        };
        let header: Header = match serde_json::from_str(header) {
            Ok(header) => header,
            Err(error) => {
                let found = format!("a training in a form that is not known here ({error})");
                return refuse(found, "one that this program has saved".into());
            }
        };
        if header.architecture != self.architecture {
            return refuse(
                format!("a training of {}", header.architecture),
                format!("one of {}, which this model is", self.architecture),
            );
        }
        let progress = match P::deserialize(&header.progress) {
            Ok(progress) => progress,
            Err(error) => {
                let found = format!("the progress {} ({error})", header.progress);
                return refuse(found, "that of this program".into());
            }
        };
        let scaled = self.scaler.as_ref().map_or(Ok(None), |scaler| scaler.state_dict())?;
        for (what, saved, here) in [
            ("a learning-rate schedule", header.scheduler.is_some(), self.scheduler.is_some()),
            ("a gradient scaler", header.scaler.is_some(), scaled.is_some()),
        ] {
            let with = |is_there| format!("{} {what}", if is_there { "with" } else { "without" });
            if saved != here {
                return refuse(
                    format!("a training {}", with(saved)),
                    format!("one {}, as this one is", with(here)),
                );
            }
        }

        let variables = self.vs.variables();
        let saved = take(&mut tensors, MODEL);
        weights::check(path, &variables, &saved)?;
        let optimizer = OptimizerState {
            optimizer: header.optimizer,
            options: header.optimizer_options,
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
        let states = take(&mut tensors, GENERATORS);
        let generators = random::restore(group, header.world_size, &states)?;
        Ok(Resumed { progress, generators })
    }
}

fn read(path: &Path) -> Result<(NamedTensors, String)> {
    let (tensors, mut metadata) = file::read(path)?;
    match metadata.remove(HEADER) {
        Some(header) => Ok((tensors, header)),
        None => Err(Error::Format {
            path: path.into(),
            found: "weights alone".into(),
            expected: "a whole training; begin one with these weights by `checkpoint::load`".into(),
        }),
    }
}

/// `progress` as JSON, if it can be had back from there.
fn to_json<P: Serialize + DeserializeOwned>(progress: &P) -> Result<Value> {
    let json = serde_json::to_value(progress).map_err(not_json("progress"))?;
    P::deserialize(&json).map_err(not_json("progress"))?;
    Ok(json)
}

fn not_json(what: &'static str) -> impl FnOnce(serde_json::Error) -> Error {
    move |error| Error::Argument {
        what: what.into(),
        found: format!("nothing that could be read again ({error})"),
        expected: "made of what JSON knows: finite numbers, text, lists, maps with text as keys"
            .into(),
    }
}

/// Says in which file the state lay that was refused.
fn in_file(path: &Path) -> impl FnOnce(Error) -> Error {
    move |error| match error {
        Error::Argument { what, found, expected } => {
            Error::Format { path: path.into(), found: format!("{what} is {found}"), expected }
        }
        other => other,
    }
}

#[cfg(test)]
mod tests;
