//! The loop around a training whose ranks change.

use super::{launcher::Launcher, state::State};
use crate::distributed::{Env, ProcessGroup, ProcessGroupOptions, init_process_group};
use crate::{Error, Result, checkpoint::AsTraining};
use serde::{Serialize, de::DeserializeOwned};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The least time that a new generation's ranks wait for each other, however short the timeout of exchanges is: a rank
/// may be evaluating. The launcher says if one is gone.
const JOIN: Duration = Duration::from_secs(10 * 60);

/// How long the launcher may take to notice that a rank is gone.
const NOTICE: Duration = Duration::from_secs(1);

/// How long it may take to give a process its place, which another generation may have to make first.
const PATIENCE: Duration = Duration::from_secs(24 * 60 * 60);

/// Calls `train` with the job's group, and again with another whenever a rank is lost or comes. `hvd.elastic.run`.
///
/// What depends on who is there is made inside `train`: the sampler and the loader from `state.progress`, and
/// [`DistributedDataParallel`] around a reference to the model. What lasts is made before: the model, the optimizer,
/// the data. A rank that is new takes the others' state before it calls `train`. When `train` returns an error because
/// a rank is gone, the state is that of the last [`commit`](State::commit) of any rank. `run` returns once `train` has
/// returned on all ranks; if one is lost before, it calls `train` once more, which finds nothing left to do. If all
/// ranks that had the state are lost, the new ones begin as after a restart. Make no group of the job before, and keep
/// no clone of this one: [`Env::read`] has the local rank, which selects a GPU.
///
/// Every exchange must return its error, which tch's own `backward` and `forward_t` do not: they panic,
/// and the process ends. So use [`DistributedDataParallel::backward`] and
/// [`forward`](crate::distributed::DistributedDataParallel::forward).
///
/// Without a launcher that could replace ranks, it calls `train` once.
///
/// [`DistributedDataParallel`]: crate::distributed::DistributedDataParallel
/// [`DistributedDataParallel::backward`]: crate::distributed::DistributedDataParallel::backward
///
/// ```
/// use tch::{Device, Tensor, nn, nn::Module};
/// use tch_parallel::checkpoint::Training;
/// use tch_parallel::distributed::{DistributedDataParallel, ProcessGroupOptions};
/// use tch_parallel::elastic;
/// use tch_parallel::optim::{Sgd, SgdOptions};
///
/// let mut vs = nn::VarStore::new(Device::Cpu);
/// let net = nn::linear(vs.root() / "fc", 4, 1, Default::default());
/// let mut optimizer = Sgd::new(&vs, SgdOptions::default())?;
/// let training = Training {
///     architecture: "linear",
///     vs: &mut vs,
///     optimizer: &mut optimizer,
///     scheduler: None,
///     scaler: None,
/// };
/// let mut state = elastic::State::new(training, 0);
/// elastic::run(ProcessGroupOptions::default(), &mut state, |group, state| {
///     let model = DistributedDataParallel::new(&net, state.training.vs, group)?;
///     while state.progress < 10 {
///         let batch = Tensor::ones([8, 4], (tch::Kind::Float, group.device()));
///         let loss = model.forward(|net| net.forward(&batch).square().mean(tch::Kind::Float))?;
///         state.training.optimizer.zero_grad()?;
///         model.backward(&loss)?;
///         state.training.optimizer.step()?;
///         state.progress += 1;
///         state.commit()?;
///     }
///     Ok::<_, tch_parallel::Error>(())
/// })?;
/// # Ok::<(), tch_parallel::Error>(())
/// ```
///
/// # Errors
/// Those of `train` but for lost ranks, those of [`init_process_group`], those of a lost rank that is not replaced, and
/// [`Error::Argument`] after a group or a store of the job was made.
pub fn run<T, P, R, E>(
    options: ProcessGroupOptions,
    state: &mut State<T, P>,
    mut train: impl FnMut(&ProcessGroup, &mut State<T, P>) -> Result<R, E>,
) -> Result<R, E>
where
    T: AsTraining,
    P: Clone + Serialize + DeserializeOwned,
    E: From<Error>,
{
    let Some(launcher) = Launcher::connect()? else {
        let group = init_process_group(options)?;
        state.join(&group)?;
        return train(&group, state);
    };
    let news = &launcher.news;
    loop {
        let Some(place) = news.next_place(PATIENCE)? else { continue };
        let generation = place.generation;
        // In the first generation as long as any group waits for ranks that start slowly.
        let join = (generation > 0).then_some(JOIN);
        let begin = Instant::now();
        // If another generation follows, some may not come to this one any more.
        let is_over = || {
            let is_late = begin.elapsed() > NOTICE && news.is_later_than(generation);
            news.is_loss_after(generation) || is_late
        };
        let env = Env::in_an_elastic_job(&place.variables)?;
        let (result, is_lost) = match ProcessGroup::in_an_elastic_job(env, options, join, is_over) {
            Ok(None) => continue,
            Ok(Some(group)) => {
                news.watch(generation, Some(&group));
                state.changes = Some((Arc::clone(news), generation));
                // An optimizer's step cannot be undone, so sums that NCCL has only queued must be complete before it.
                let group = group.on_host();
                let joined = state.join(&group).map_err(E::from);
                let trained = joined.and_then(|()| train(&group, state));
                // Either all come to the end of `train`, or none does.
                let result = trained.and_then(|value| Ok(group.barrier().map(|()| value)?));
                news.watch(generation, None);
                let is_lost = news.is_later_than(generation) || group.inner.unfinished.has_lost();
                if result.is_err() && is_lost {
                    // The others must not wait for this rank.
                    group.standing().fail();
                }
                (result, is_lost)
            }
            Err(error @ Error::Rendezvous { .. }) => (Err(error.into()), true),
            Err(error) => return Err(error.into()),
        };
        // A rank that is lost after this is not replaced.
        if (result.is_ok() && launcher.finish(generation)) || (result.is_err() && !is_lost) {
            return result;
        }
        state.roll_back()?;
        let another_follows = || news.changes_within(generation, NOTICE);
        if another_follows() {
            continue;
        }
        // Nobody may be gone, for all that the launcher knows.
        launcher.report_broken(generation);
        if !another_follows() {
            return result;
        }
    }
}
