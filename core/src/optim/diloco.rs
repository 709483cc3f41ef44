//! Training over slow links: every rank makes its own steps, and an outer optimizer combines the results.

mod fragments;
mod options;

use super::post_local_sgd::{STEP, saved_step};
use super::zero_redundancy::{BROADCAST_BUFFER_BYTES, named};
use super::{GroupOptions, Optimizer, OptimizerState, ParamGroup, ParamGroupOptimizer};
use super::{SgdOptions, UpdateRule};
use crate::distributed::{Pending, ProcessGroup, fsdp::shards, parts_like, start_mean};
use crate::{Error, Result, check};
use c10d_sys::arithmetic::{copy, lerp_};
use c10d_sys::tensor::set_grad;
use tch::{Tensor, no_grad};
use tch_parallel_base::named_tensors::NamedTensors;

pub use fragments::model_fragments;
pub use options::DiLoCoOptions;

/// Prefixes of the tensors' names.
const INNER: &str = "inner.";
const OUTER: &str = "outer.";
const GLOBAL: &str = "global.";
/// The mean over the ranks of the fragment that is underway.
const PSEUDOGRADIENT: &str = "pseudogradient";

/// Makes another optimizer's steps on each rank alone, and every `sync_every` steps one of an outer optimizer for all.
/// torchft's `DiLoCo`; Douillard and others, "DiLoCo: Distributed Low-Communication Training of Language Models", 2023.
///
/// The outer optimizer updates the global weights, which are the same on all ranks. Its gradient, the *pseudogradient*,
/// is the global weights minus a rank's own, averaged over the ranks. The rank's own weights are then replaced by the
/// new global ones, or mixed with them.
///
/// Several fragments take turns: with two, the first is exchanged after `sync_every / 2` steps, the second after
/// `sync_every`, and so on, so that half as much is sent at once. With a delay, the ranks make further steps during the
/// exchange (Douillard and others, "Streaming DiLoCo with overlapping communication", 2025).
///
/// ```
/// use tch::{Kind, Tensor, nn};
/// use tch_parallel::distributed::ProcessGroup;
/// use tch_parallel::optim::{Adam, AdamOptions, DiLoCo, DiLoCoOptions, Optimizer, model_fragments};
///
/// let group = ProcessGroup::from_env()?;
/// let vs = nn::VarStore::new(group.device());
/// let model = nn::linear(vs.root() / "fc", 8, 3, Default::default());
/// let adam = Adam::new(&vs, AdamOptions::adamw())?;
/// // The weight after 5, 15, 25 … steps, the bias after 10, 20, 30 …: each is sent 2 steps earlier.
/// let options = DiLoCoOptions { fragment_sync_delay: 2, ..DiLoCoOptions::new(10) };
/// let mut optimizer = DiLoCo::new(adam, model_fragments(&vs, 2)?, &group, options)?;
/// for _ in 0..10 {
///     let images = Tensor::ones([4, 8], (Kind::Float, group.device()));
///     optimizer.zero_grad()?;
///     images.apply(&model).square().mean(Kind::Float).backward(); // without DistributedDataParallel
///     optimizer.step()?;
/// }
/// # Ok::<(), tch_parallel::Error>(())
/// ```
///
/// Schedules change the wrapped optimizer. A [checkpoint](crate::checkpoint::Training) holds the global weights and the
/// outer state, but only rank 0's own weights and inner state. Load the state of another optimizer before you wrap it.
///
/// All ranks must make the same number of steps. So do not use [`GradScaler`](crate::amp::GradScaler), which may skip a
/// step on one rank and not on another.
#[derive(Debug)]
pub struct DiLoCo<O, R = SgdOptions> {
    inner: O,
    /// Of the global weights, which are copies: a parameter group for each fragment.
    outer: ParamGroupOptimizer<R>,
    /// This rank's own weights, in the order of the outer optimizer's: `[fragment][variable]`.
    own: Vec<Vec<Tensor>>,
    options: DiLoCoOptions<R>,
    /// The number of steps from one fragment to the next.
    period: u64,
    group: ProcessGroup,
    /// The number of steps of the inner optimizer.
    step: u64,
    /// The pseudogradient that is underway between the ranks: of one fragment at a time.
    sent: Option<Pending<Tensor>>,
    /// The averaged pseudogradient, once its exchange has been waited for.
    mean: Option<Tensor>,
}

impl<O: Optimizer, R: UpdateRule> DiLoCo<O, R> {
    /// Wraps `inner`. The fragments are lists of variables with their names, `[fragment][variable]`, in the same order
    /// on all ranks. Variables in none of them are never exchanged. A collective: all begin with rank 0's fragments.
    ///
    /// # Errors
    /// [`Error::Argument`] for an empty fragment, for a variable in two of them, for shards of
    /// [`FullyShard`](crate::distributed::FullyShard), and for options that do not fit together.
    pub fn new(
        inner: O,
        fragments: Vec<Vec<(String, Tensor)>>,
        group: &ProcessGroup,
        options: DiLoCoOptions<R>,
    ) -> Result<Self> {
        let are_full = !fragments.is_empty() && !fragments.iter().any(Vec::is_empty);
        check(are_full, "fragments", "empty", "lists of one variable or more")?;
        let period = options.period(fragments.len())?;
        let instead = "the ranks of one FullyShard have one model together";
        shards::refuse("DiLoCo", fragments.iter().flatten(), instead)?;
        let (mut own, mut groups) = (Vec::new(), Vec::new());
        for fragment in fragments {
            let tensors: Vec<_> = fragment.iter().map(|(_, own)| own.shallow_clone()).collect();
            group.broadcast_coalesced("DiLoCo::new", &tensors, BROADCAST_BUFFER_BYTES, 0)?;
            let globals = fragment.into_iter().map(|(name, own)| Ok((name, copy(&own)?)));
            groups.push(ParamGroup::new(globals.collect::<Result<_>>()?, options.outer.clone()));
            own.push(tensors);
        }
        let (outer, group) = (ParamGroupOptimizer::from_param_groups(groups)?, group.clone());
        Ok(DiLoCo { inner, outer, own, options, period, group, step: 0, sent: None, mean: None })
    }

    /// The outer optimizer, with a parameter group for each fragment. Its parameters are the global weights, which are
    /// the trained model in the end.
    pub fn outer_mut(&mut self) -> &mut ParamGroupOptimizer<R> {
        &mut self.outer
    }

    /// Starts averaging the ranks' pseudogradients of a fragment.
    fn send(&self, fragment: usize) -> Result<Pending<Tensor>> {
        let pairs = self.globals(fragment).into_iter().zip(&self.own[fragment]);
        let differences = pairs.map(|(global, own)| no_grad(|| global.f_sub(own)));
        start_mean(&self.group, &differences.collect::<Result<Vec<_>, _>>()?)
    }

    fn receive(&mut self) -> Result<()> {
        if let Some(sent) = self.sent.take() {
            self.mean = Some(sent.wait()?);
        }
        Ok(())
    }

    /// Makes the outer step, and moves the rank's own weights to the fragment's new global ones.
    fn apply(&mut self, fragment: usize, pseudogradient: &Tensor) -> Result<()> {
        let mut globals = self.globals(fragment);
        let gradients = parts_like(&globals, pseudogradient)?;
        for (global, gradient) in globals.iter_mut().zip(&gradients) {
            set_grad(global, gradient).map_err(Error::engine("DiLoCo"))?;
        }
        self.outer.step()?;
        self.outer.zero_grad()?;
        no_grad(|| {
            for (global, own) in globals.iter().zip(&self.own[fragment]) {
                let mut mixed = copy(global)?;
                lerp_(&mut mixed, own, self.options.fragment_update_alpha)?;
                own.shallow_clone().f_copy_(&mixed)?;
            }
            Ok(())
        })
    }

    fn globals(&self, fragment: usize) -> Vec<Tensor> {
        self.outer.param_groups()[fragment].tensors()
    }
}

impl<O: Optimizer, R: UpdateRule> Optimizer for DiLoCo<O, R> {
    /// Makes a step of the inner optimizer, and starts or ends an exchange if one is due. A collective. Other ranks
    /// learn about an error of the optimizers when this one ends.
    fn step(&mut self) -> Result<()> {
        self.group.refuse_in_join("DiLoCo")?;
        self.group.or_report(self.inner.step())?;
        let fragment = (self.step / self.period) as usize % self.own.len();
        self.step += 1;
        if (self.step + self.options.fragment_sync_delay).is_multiple_of(self.period) {
            self.sent = Some(self.group.or_report(self.send(fragment))?);
        }
        if !self.step.is_multiple_of(self.period) {
            return Ok(());
        }
        self.receive()?;
        let Some(mean) = self.mean.take() else { return Ok(()) };
        let applied = self.apply(fragment, &mean);
        self.group.or_report(applied)
    }

    fn param_groups(&self) -> Vec<&ParamGroup<dyn GroupOptions>> {
        self.inner.param_groups()
    }

    fn param_groups_mut(&mut self) -> Vec<&mut ParamGroup<dyn GroupOptions>> {
        self.inner.param_groups_mut()
    }

    /// Also waits, on all ranks, for the fragment that is underway, so that it can be saved.
    fn consolidate_state_dict(&mut self, to: usize) -> Result<()> {
        self.inner.consolidate_state_dict(to)?;
        self.receive()
    }

    /// The tensors' names begin with `inner.`, `outer.` or `global.`; the groups of the outer optimizer come last.
    ///
    /// # Errors
    /// [`Error::Argument`] while a fragment is underway, unless
    /// [`consolidate_state_dict`](Self::consolidate_state_dict) has waited for it.
    fn state_dict(&self) -> Result<OptimizerState> {
        let expected = "complete: call `consolidate_state_dict(0)` on all ranks";
        check(self.sent.is_none(), "a fragment", "underway between the ranks", expected)?;
        let (inner, outer) = (self.inner.state_dict()?, self.outer.state_dict()?);
        let mut tensors = vec![(STEP.to_owned(), Tensor::from(self.step as i64))];
        let mean = self.mean.as_ref().map(|mean| (String::new(), mean.shallow_clone()));
        for (prefix, part) in [
            (INNER, inner.tensors),
            (OUTER, outer.tensors),
            (GLOBAL, named(self.outer.param_groups())),
            (PSEUDOGRADIENT, mean.into_iter().collect()),
        ] {
            tensors.extend(part.into_iter().map(|(name, it)| (format!("{prefix}{name}"), it)));
        }
        let optimizer = format!("DiLoCo({}, {})", inner.optimizer, outer.optimizer);
        let param_groups = [inner.param_groups, outer.param_groups].concat();
        Ok(OptimizerState { optimizer, param_groups, tensors })
    }

    fn load_state_dict(&mut self, state: &OptimizerState) -> Result<()> {
        let kinds = state.optimizer.strip_prefix("DiLoCo(").and_then(|it| it.strip_suffix(')'));
        let Some((inner, outer)) = kinds.and_then(|kinds| kinds.rsplit_once(", ")) else {
            let found = format!("that of {}", state.optimizer);
            let expected = "that of DiLoCo; load any other before `DiLoCo::new`";
            return Err(Error::argument("the optimizer state", found, expected));
        };
        let tensors = |prefix: &str| -> Vec<(String, Tensor)> {
            let tensors = state.tensors.iter();
            let named = tensors.filter_map(|(name, it)| Some((name.strip_prefix(prefix)?, it)));
            named.map(|(name, tensor)| (name.to_owned(), tensor.shallow_clone())).collect()
        };
        let (step, saved) = (saved_step(state, STEP)?, NamedTensors::from_iter(tensors(GLOBAL)));
        let globals = named(self.outer.param_groups());
        for (name, global) in &globals {
            let is_there = saved.get(name).map(Tensor::size) == Some(global.size());
            let what = format_args!("{GLOBAL}{name} in the optimizer state");
            let expected = format!("there, of shape {:?}", global.size());
            check(is_there, what, "missing or of another shape", expected)?;
        }
        let mean = tensors(PSEUDOGRADIENT).pop().map(|(_, mean)| mean);
        let fragment = &self.own[(step / self.period) as usize % self.own.len()];
        let numbers: usize = fragment.iter().map(Tensor::numel).sum();
        let is_due = (step + self.options.fragment_sync_delay) / self.period > step / self.period;
        let fits = mean.as_ref().map(Tensor::numel) == is_due.then_some(numbers);
        let found = format_args!("that of other fragments underway after {step} steps");
        let expected = "of a training with the same fragments, sync_every and delay";
        check(fits, "the optimizer state", found, expected)?;
        let count = state.param_groups.len().saturating_sub(self.own.len());
        let groups = state.param_groups.split_at(count);
        let part = |optimizer: &str, groups: &[_], prefix| {
            let (optimizer, param_groups) = (optimizer.to_owned(), groups.to_vec());
            OptimizerState { optimizer, param_groups, tensors: tensors(prefix) }
        };
        let own = self.outer.state_dict()?;
        self.outer.load_state_dict(&part(outer, groups.1, OUTER))?;
        if let Err(refused) = self.inner.load_state_dict(&part(inner, groups.0, INNER)) {
            self.outer.load_state_dict(&own)?;
            return Err(refused);
        }
        for (name, mut global) in globals {
            no_grad(|| global.f_copy_(&saved[&name]))?;
        }
        self.mean = mean;
        (self.step, self.sent) = (step, None);
        Ok(())
    }

    /// The inner state, the outer state and the global weights.
    fn state_bytes(&self) -> usize {
        let bytes = |tensor: &Tensor| tensor.numel() * tensor.kind().elt_size_in_bytes();
        let globals: usize = self.outer.parameters().iter().map(bytes).sum();
        self.inner.state_bytes() + self.outer.state_bytes() + globals
    }
}
