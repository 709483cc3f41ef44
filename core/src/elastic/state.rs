//! What all ranks of a training have alike.

use super::launcher::News;
use crate::distributed::{ProcessGroup, bucket_order, copy_each};
use crate::{Error, Result, amp::GradScaler, checkpoint::AsTraining};
use c10d_sys::tensor::{clear_grad, identity};
use serde::{Serialize, de::DeserializeOwned};
use std::sync::Arc;
use tch::Tensor;
use tch_parallel_base::{parameters::named_buffers, random::RandomState};

/// A training and its progress, of which every rank holds the whole. Horovod's `hvd.elastic.TorchState`.
///
/// A new rank gets only what `training` holds: another store or optimizer, or averaged weights, would begin anew there.
/// A sharded model or optimizer is refused: a lost rank would take its shard with it.
#[derive(Debug)]
pub struct State<T, P> {
    /// What holds the parts of the training.
    pub training: T,
    /// What the program must know to go on, such as the epoch and the samples of it that all ranks together have had.
    pub progress: P,
    /// How many steps have been committed; `None` for a rank that has not met the others yet.
    steps: Option<i64>,
    committed: Option<Committed<P>>,
    /// The order of gradients in DistributedDataParallel's buckets, as soon as it is known.
    bucket_order: Option<Vec<String>>,
    /// The steps that this process has committed since the ranks last changed.
    commits: u64,
    /// The model's, which a forward pass in training changes.
    buffers: Vec<Tensor>,
    /// Where [`commit`](Self::commit) learns of generations after this one.
    pub(super) changes: Option<(Arc<News>, u64)>,
    rank: usize,
    world_size: usize,
}

/// What a step changes before its end.
#[derive(Debug)]
struct Committed<P> {
    progress: P,
    buffers: Vec<Tensor>,
    random: RandomState,
}

impl<T: AsTraining, P: Clone + Serialize + DeserializeOwned> State<T, P> {
    /// The state of a training that begins, or goes on from a checkpoint that all ranks have loaded.
    pub fn new(training: T, progress: P) -> Self {
        State {
            training,
            progress,
            steps: None,
            committed: None,
            bucket_order: None,
            commits: 0,
            buffers: Vec::new(),
            changes: None,
            rank: 0,
            world_size: 1,
        }
    }

    /// Ends a step. Call it after optimizer, scheduler and scaler, once `progress` is set, with no exchange in between.
    /// A step is repeated by all if a rank is lost before any has committed it, and never after. `state.commit()`.
    ///
    /// It copies buffers and random generators, so that a repeated step draws what it drew, and counts a batch once.
    ///
    /// # Errors
    /// [`Error::Rendezvous`] if a new rank waits: return it from the function that [`run`](super::run) calls.
    pub fn commit(&mut self) -> Result<()> {
        self.steps = Some(self.steps.unwrap_or(0) + 1);
        self.commits += 1;
        // After one step it is this rank's own; the second forward pass gives all rank 0's, which stays.
        if self.commits <= 2
            && let Some(order) = bucket_order::state_dict(self.training.as_training().vs)?
        {
            self.bucket_order = Some(order);
        }
        self.remember()?;
        let has_successor = |(news, generation): &(Arc<News>, u64)| news.is_later_than(*generation);
        if !self.changes.as_ref().is_some_and(has_successor) {
            return Ok(());
        }
        let (rank, world_size) = (self.rank, self.world_size);
        let operation = "go on with the same ranks".into();
        let message = "another one has come; elastic::run takes it in when it gets this error";
        Err(Error::Rendezvous { rank, world_size, operation, message: message.into() })
    }

    /// Whether any rank has committed a step. If so, a new rank must not, for example, resume from a checkpoint.
    pub fn has_begun(&self) -> bool {
        self.steps.is_some_and(|steps| steps > 0)
    }

    /// Brings all ranks up to the one that has come furthest. A collective.
    pub(super) fn join(&mut self, group: &ProcessGroup) -> Result<()> {
        (self.rank, self.world_size) = (group.rank(), group.world_size());
        self.commits = 0;
        let mut training = self.training.as_training();
        training.check_whole(&self.progress)?;
        if group.inner.post_mortem.is_elastic {
            let lasting = training.vs.variables().values().map(identity).collect();
            let _ = group.inner.lasting.set(lasting);
        }
        let steps = group.all_gather_object(&self.steps)?;
        let newest = steps.iter().copied().max().flatten();
        let source = steps.iter().position(|steps| *steps == newest).unwrap_or(0);
        group.broadcast_object(&mut self.bucket_order, source)?;
        if let Some(order) = &self.bucket_order {
            let _ = group.inner.bucket_order.set(order.clone());
        }
        if steps.iter().any(|steps| *steps != newest) {
            let receives = steps[self.rank] != newest;
            self.progress = training.copy_from(source, receives, &self.progress, group)?;
        }
        self.steps = newest.or(Some(0));
        self.buffers = named_buffers(training.vs).into_iter().map(|(_, buffer)| buffer).collect();
        self.remember()
    }

    fn remember(&mut self) -> Result<()> {
        let device = self.training.as_training().vs.device();
        self.committed = Some(Committed {
            progress: self.progress.clone(),
            buffers: self.buffers.iter().map(Tensor::copy).collect(),
            random: RandomState::of(&[device])?,
        });
        Ok(())
    }

    /// Undoes what a step has changed that is not committed.
    pub(super) fn roll_back(&mut self) -> Result<()> {
        let Some(committed) = &self.committed else { return Ok(()) };
        self.progress = committed.progress.clone();
        committed.random.restore()?;
        // The loop may clear gradients only after its step.
        let training = self.training.as_training();
        training.scaler.into_iter().for_each(GradScaler::forget_step);
        let mut parameters = training.vs.trainable_variables();
        parameters.iter_mut().try_for_each(clear_grad).map_err(Error::engine("elastic::run"))?;
        copy_each(&self.buffers, &committed.buffers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::distributed::{DeviceChoice, DistributedDataParallel, Env, ProcessGroupOptions};
    use crate::distributed::{Store, expect_no_member};
    use crate::optim::{Adam, AdamOptions};
    use crate::{amp::GradScalerOptions, checkpoint::Training};
    use ::tests::errors::expect_error;
    use std::{collections::BTreeMap, sync::Barrier, thread, time::Duration};
    use tch::nn::{self, Init, ModuleT, VarStore};
    use tch::{Device, Kind};

    /// A model with buffers and an optimizer with state; `weight` is what tells a rank from others.
    fn with_state<T>(
        weight: f64,
        test: impl FnOnce(&nn::BatchNorm, State<Training<'_>, u64>) -> T,
    ) -> T {
        let mut vs = VarStore::new(Device::Cpu);
        let config = nn::BatchNormConfig { ws_init: Init::Const(weight), ..Default::default() };
        let net = nn::batch_norm1d(vs.root() / "bn", 3, config);
        let mut optimizer = Adam::new(&vs, AdamOptions::default()).unwrap();
        let (vs, optimizer) = (&mut vs, &mut optimizer);
        let mut scaler = GradScaler::new(GradScalerOptions::default()).unwrap();
        let scaler = Some(&mut scaler);
        let training = Training { architecture: "bn", vs, optimizer, scheduler: None, scaler };
        test(&net, State::new(training, 0))
    }

    fn pass(net: &nn::BatchNorm, state: &mut State<Training<'_>, u64>) {
        let batch = Tensor::arange(12, (Kind::Float, Device::Cpu)).view([4, 3]);
        state.training.optimizer.zero_grad().unwrap();
        net.forward_t(&batch, true).square().sum(Kind::Float).backward();
    }

    fn step(net: &nn::BatchNorm, state: &mut State<Training<'_>, u64>) {
        pass(net, state);
        state.training.optimizer.step().unwrap();
        state.progress += 1;
        state.commit().unwrap();
    }

    fn texts(state: &State<Training<'_>, u64>) -> BTreeMap<String, String> {
        let optimizer = state.training.optimizer.state_dict().unwrap().tensors;
        let all = state.training.vs.variables().into_iter().chain(optimizer);
        all.map(|(name, tensor)| (name, format!("{:?}", tensor.flatten(0, -1)))).collect()
    }

    #[test]
    fn what_a_lost_rank_would_take_along_or_leave_waiting_is_refused() {
        const SOON: Duration = Duration::from_secs(60);
        let port = ::tests::programs::free_port().unwrap();
        let env = |rank, ranks| Env::given(rank, ranks, Some(("127.0.0.1", port))).unwrap();
        expect_no_member("elastic::run").unwrap();
        drop(Store::of(Some(env(0, 1)), SOON).unwrap());
        let refused = expect_no_member("elastic::run");
        expect_error(refused, "called after a group or a store of the job");
        let (device, timeout) = (DeviceChoice::Cpu, Some(SOON));
        let options = ProcessGroupOptions { device, timeout, ..Default::default() };
        let member = |rank, ranks| {
            let elastic = Env { is_elastic: true, ..env(rank, ranks) };
            ProcessGroup::in_an_elastic_job(elastic, options, None, || false).unwrap().unwrap()
        };
        let group = member(0, 1);
        expect_error(group.new_group(&[0]), "new_group is called within elastic::run");
        with_state(1.0, |net, mut state| {
            state.join(&group).unwrap();
            let _ = DistributedDataParallel::new(net, state.training.vs, &group).unwrap();
            let other = VarStore::new(Device::Cpu);
            let net = nn::linear(other.root(), 1, 1, Default::default());
            let refused = DistributedDataParallel::new(&net, &other, &group);
            expect_error(refused, "vs is a store that elastic::State does not hold");
        });
        drop(group);
        let refused = Store::of(Some(env(0, 1)), SOON);
        expect_error(refused, "(inside elastic::run, use the group that it passes)");

        // Rank 1 leaves for another group. In the store, rank 0 would wait for it until the timeout.
        let both_are_there = Barrier::new(2);
        thread::scope(|scope| {
            scope.spawn(|| {
                let group = member(1, 2);
                both_are_there.wait();
                group.standing().fail();
            });
            let group = member(0, 2);
            both_are_there.wait();
            let error = group.agree("save", None).unwrap_err().to_string();
            assert!(error.contains("barrier failed"), "{error}");
        });
    }

    #[test]
    fn a_rank_that_is_new_or_behind_takes_all_from_one_that_is_ahead() {
        let store = Store::from_env(Duration::from_secs(60)).unwrap();
        let options = ProcessGroupOptions { device: DeviceChoice::Cpu, ..Default::default() };
        let rank = |rank: usize, steps: Option<u64>| {
            let store = store.try_clone().unwrap();
            move || {
                let group = ProcessGroup::with_store(&store, rank, 3, options).unwrap();
                with_state(1.0 + rank as f64, |net, mut state| {
                    (0..steps.unwrap_or(0)).for_each(|_| step(net, &mut state));
                    state.bucket_order = Some(vec![format!("of rank {rank}")]);
                    state.join(&group).unwrap();
                    (texts(&state), state.progress, state.steps, state.bucket_order)
                })
            }
        };
        let ranks = [(0, None), (1, Some(2)), (2, Some(1))];
        let ranks = ranks.map(|(number, steps)| thread::spawn(rank(number, steps)));
        let [new, ahead, behind] = ranks.map(|rank| rank.join().unwrap());
        assert_eq!((ahead.1, ahead.2), (2, Some(2)));
        assert!(ahead.0.iter().any(|(name, _)| name.contains("exp_avg")), "{:?}", ahead.0);
        assert_eq!(new, ahead);
        assert_eq!(behind, ahead);
    }

    #[test]
    fn a_step_that_is_undone_leaves_no_trace_in_buffers_and_progress() {
        with_state(1.0, |net, mut state| {
            state.join(&ProcessGroup::from_env().unwrap()).unwrap();
            step(net, &mut state);
            let committed = texts(&state);
            for _ in 0..2 {
                pass(net, &mut state);
                state.progress = 7;
                assert_ne!(texts(&state), committed, "running statistics have changed");
                let Training { scaler, optimizer, .. } = &mut state.training;
                let scaler = scaler.as_mut().unwrap();
                let _ = scaler.scale(&Tensor::from(1f32)).unwrap();
                scaler.unscale_(*optimizer).unwrap();
                state.roll_back().unwrap();
                assert_eq!((texts(&state), state.progress), (committed.clone(), 1));
            }
            let parameters = state.training.vs.trainable_variables();
            assert!(parameters.iter().all(|parameter| !parameter.grad().defined()));
        });
    }

    #[test]
    fn buckets_keep_their_order_when_ranks_change_as_in_a_training_that_is_resumed() {
        for names in [["bn.bias", "bn.weight"], ["bn.weight", "bn.bias"]] {
            with_state(1.0, |net, mut state| {
                let group = ProcessGroup::from_env().unwrap();
                let order = Some(names.map(String::from).to_vec());
                state.bucket_order = order.clone();
                state.join(&group).unwrap();
                let model = DistributedDataParallel::new(net, state.training.vs, &group).unwrap();
                let batch = Tensor::ones([4, 3], (Kind::Float, Device::Cpu));
                let output = model.forward(|net| net.forward_t(&batch, true)).unwrap();
                model.backward(&output.sum(Kind::Float)).unwrap();
                assert_eq!(bucket_order::state_dict(state.training.vs).unwrap(), order);
            });
        }
    }
}
