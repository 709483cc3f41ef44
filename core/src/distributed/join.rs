//! Uneven inputs: a rank that runs out of inputs joins in the other ranks' collectives.
//!
//! `torch.distributed.algorithms.join`.

use super::{fault::blame::failed_collective, group::ProcessGroup};
use crate::{Error, Result, check};
use c10d_sys::{ReduceOp, Work};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::{any::type_name, cell::RefCell, fmt::Display};
use tch::Tensor;
use tch_parallel_base::options;

pub(crate) const OPERATION: &str = "join";

/// The kind of join that a group is in: none, one that ends early, or one in which ranks without inputs follow.
const NONE: u8 = 0;
const ENDS_EARLY: u8 = 1;
const SHADOWS: u8 = 2;

options! {
    /// PyTorch's keyword arguments of `Join` and `DistributedDataParallel.join`, with its defaults, except `enable`.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct JoinOptions {
        /// Whether gradients are always divided by the number of all ranks: every sample has the same weight, and steps
        /// with fewer ranks are smaller. Otherwise they are divided by the number of ranks that still train, and the
        /// samples of later steps have more weight. As in PyTorch, `false` affects only a model that is the first
        /// joinable. A communication hook does its own division, usually by the number of all ranks.
        pub divide_by_initial_world_size: bool = true,
        /// Whether training ends on all ranks, with an error, as soon as one runs out of inputs.
        pub throw_on_early_termination: bool = false,
    }
}

/// An object that exchanges tensors in each training step, and can follow the other ranks' steps on
/// a rank that has run out of inputs: see [`join`]. PyTorch's `Joinable` together with its `JoinHook`.
///
/// ```
/// # use tch::Tensor;
/// use tch_parallel::distributed::{JoinConfig, Joinable, ProcessGroup, ReduceOp, join};
/// use tch_parallel::Result;
///
/// /// Counts the samples of all ranks.
/// struct Counter(ProcessGroup, JoinConfig, i64);
///
/// impl Counter {
///     fn add(&mut self, samples: i64) -> Result<()> {
///         let mut sum = Tensor::from_slice(&[samples]).to(self.0.exchange_device());
///         self.0.all_reduce(&mut sum, ReduceOp::Sum)?;
///         self.2 += sum.int64_value(&[0]);
///         Ok(())
///     }
/// }
///
/// impl Joinable for Counter {
///     fn join_process_group(&self) -> &ProcessGroup { &self.0 }
///     fn join_config(&self) -> &JoinConfig { &self.1 }
///     fn main_hook(&mut self) -> Result<()> { self.add(0) }
/// }
///
/// let mut counter = Counter(ProcessGroup::from_env()?, JoinConfig::default(), 0);
/// join([&mut counter], Default::default(), |[counter]| {
///     // This rank's batches; another may have more or fewer.
///     [64, 64, 17].into_iter().try_for_each(|samples| {
///         counter.notify_join_context()?;
///         counter.add(samples)
///     })
/// })?;
/// assert_eq!(counter.2, 145); // of all ranks, of which there is only one here
/// # Ok::<(), tch_parallel::Error>(())
/// ```
pub trait Joinable {
    /// The group of its collectives: the same for all joinables of a join.
    fn join_process_group(&self) -> &ProcessGroup;

    /// Its place in a join: a field that starts as `JoinConfig::default()`.
    fn join_config(&self) -> &JoinConfig;

    /// Takes part in the collectives of one step of the other ranks, in the same order. Called on a
    /// rank without inputs, for each step of the others. `JoinHook.main_hook`
    fn main_hook(&mut self) -> Result<()>;

    /// Called once when all ranks have run out of inputs, to give them the same final state:
    /// `is_last_joiner` is true on the ranks that made the last step. `JoinHook.post_hook`
    fn post_hook(&mut self, is_last_joiner: bool) -> Result<()> {
        let _ = is_last_joiner;
        Ok(())
    }

    /// Call this once in each step, before the step's own collectives: it tells the ranks without
    /// inputs that this one has some. Outside a join it does nothing. `Join.notify_join_context`
    ///
    /// # Errors
    /// [`Error::Argument`] in a join that does not cover this joinable, unless the join ends early,
    /// and if a step does not use every joinable of the join once and in order: ranks without inputs
    /// could not follow. [`Error::Collective`] if the join ends early because a rank is out of inputs.
    fn notify_join_context(&self) -> Result<()> {
        // `&module::Name<Parameters>`
        let name = type_name::<Self>().split('<').next().and_then(|path| path.rsplit(':').next());
        let name = name.unwrap_or_default();
        self.join_config().notify(name, self.join_process_group()).map(drop)
    }
}

impl<J: Joinable + ?Sized> Joinable for &mut J {
    fn join_process_group(&self) -> &ProcessGroup {
        (**self).join_process_group()
    }

    fn join_config(&self) -> &JoinConfig {
        (**self).join_config()
    }

    fn main_hook(&mut self) -> Result<()> {
        (**self).main_hook()
    }

    fn post_hook(&mut self, is_last_joiner: bool) -> Result<()> {
        (**self).post_hook(is_last_joiner)
    }
}

/// What a [`join`] takes: an array of one type of [`Joinable`], or two or three of any types.
pub trait Joinables {
    /// All of them, in the order in which a step uses them.
    fn list(&mut self) -> Vec<&mut dyn Joinable>;
}

impl<J: Joinable, const N: usize> Joinables for [J; N] {
    fn list(&mut self) -> Vec<&mut dyn Joinable> {
        self.iter_mut().map(|joinable| joinable as &mut dyn Joinable).collect()
    }
}

impl<A: Joinable, B: Joinable> Joinables for (A, B) {
    fn list(&mut self) -> Vec<&mut dyn Joinable> {
        vec![&mut self.0, &mut self.1]
    }
}

impl<A: Joinable, B: Joinable, C: Joinable> Joinables for (A, B, C) {
    fn list(&mut self) -> Vec<&mut dyn Joinable> {
        vec![&mut self.0, &mut self.1, &mut self.2]
    }
}

/// Passes these joinables to `training`, in which ranks may make different numbers of steps with them: `join((&model,
/// &mut optimizer), options, |(model, optimizer)| …)`. A collective. `with Join([model, optimizer]):`
///
/// A rank that finishes its training early runs the joinables' [`main_hook`](Joinable::main_hook)s for each step of the
/// others, and all ranks run their [`post_hook`](Joinable::post_hook)s at the end. [`DistributedDataParallel::join`]
/// says what this does to a model. On a rank without inputs, a [`ZeroRedundancyOptimizer`] goes on updating its share
/// of the parameters, as in PyTorch with the gradients of that rank's own last step: the others' do not reach it.
///
/// Each step must use every joinable once, in their order, and one after the other. So gradients cannot accumulate over
/// several forward passes of a model that is joined with an optimizer, and with two models, the first one's backward
/// pass must come before the second one's forward pass. Only the joinables may exchange tensors, unless
/// `throw_on_early_termination` ends all ranks before the first step for which one of them has no inputs.
///
/// [`DistributedDataParallel::join`]: super::DistributedDataParallel::join
/// [`ZeroRedundancyOptimizer`]: crate::optim::ZeroRedundancyOptimizer
///
/// # Errors
/// Those of `training` and of the hooks, which the others learn as this one ends. If asked for, an error that names the
/// rank without inputs. [`Error::Argument`] for a join within a join, for joinables of several groups, and for none.
pub fn join<J: Joinables, T, E: From<Error> + Display>(
    mut joinables: J,
    options: JoinOptions,
    training: impl FnOnce(&mut J) -> Result<T, E>,
) -> Result<T, E> {
    let context = Context::begin(&joinables.list(), options)?;
    let group = context.group.clone();
    let outcome = training(&mut joinables);
    let outcome = context.end(outcome)?;
    // From here on, a notification by a hook does not tell the others that this rank has inputs.
    drop(context);
    let mut joinables = joinables.list();
    let mut is_last = true;
    while count(&group, false)? > 0.0 {
        if options.throw_on_early_termination {
            count(&group, true)?;
            let message = format!("Rank {} exhausted all inputs.", group.job_rank());
            return Err(ended(&group, message).into());
        }
        let mut shadowed = joinables.iter_mut().map(|joinable| joinable.main_hook());
        group.or_report_first(shadowed.try_for_each(|hook| hook))?;
        is_last = false;
    }
    let mut synced = joinables.iter_mut().map(|joinable| joinable.post_hook(is_last));
    group.or_report_first(synced.try_for_each(|hook| hook))?;
    Ok(outcome)
}

/// What a [`Joinable`] keeps about the join it is in. `_JoinConfig`
#[derive(Debug, Default)]
pub struct JoinConfig(RefCell<(Weak<Context>, usize)>);

impl JoinConfig {
    /// The options of the join, within one.
    pub(crate) fn options(&self) -> Option<JoinOptions> {
        self.0.borrow().0.upgrade().map(|context| context.options)
    }

    /// [`Joinable::notify_join_context`]; the first joinable starts the exchange of how many ranks have inputs.
    pub(crate) fn notify(&self, name: &str, group: &ProcessGroup) -> Result<Option<Work>> {
        let (context, place) = &*self.0.borrow();
        let Some(context) = context.upgrade() else {
            return group.refuse_in_join(name).map(|()| None);
        };
        context.go_on()?;
        context.expect_turn(*place)?;
        context.next.store((place + 1) % context.joinables, Ordering::Relaxed);
        if *place > 0 {
            return Ok(None);
        }
        let work = announce(group, true)?;
        if context.options.throw_on_early_termination && count(group, false)? > 0.0 {
            context.terminated.store(true, Ordering::Relaxed);
            context.go_on()?;
        }
        Ok(Some(work))
    }
}

/// A join on a rank that still trains. Its joinables leave it when it is dropped, even by a panic.
struct Context {
    group: ProcessGroup,
    options: JoinOptions,
    joinables: usize,
    /// The place of the joinable that the step uses next.
    next: AtomicUsize,
    /// Whether this rank has learned that another is out of inputs.
    terminated: AtomicBool,
}

impl Context {
    fn begin(joinables: &[&mut dyn Joinable], options: JoinOptions) -> Result<Arc<Context>> {
        let none = || Error::argument("the list to join", "empty", "one or more joinables");
        let first = joinables.first().ok_or_else(none)?;
        let group = first.join_process_group().clone();
        let is_outside = group.inner.in_join.load(Ordering::Relaxed) == NONE;
        check(is_outside, OPERATION, "called within a join", "called outside")?;
        let kind = if options.throw_on_early_termination { ENDS_EARLY } else { SHADOWS };
        group.inner.in_join.store(kind, Ordering::Relaxed);
        let context = Arc::new(Context {
            group,
            options,
            joinables: joinables.len(),
            next: AtomicUsize::new(0),
            terminated: AtomicBool::new(false),
        });
        for (place, joinable) in joinables.iter().enumerate() {
            let what = format!("joinable {place} of join");
            let is_same = Arc::ptr_eq(&joinable.join_process_group().inner, &context.group.inner);
            let found = "of another process group than the first";
            check(is_same, &what, found, "of the same one")?;
            let config = joinable.join_config();
            check(config.options().is_none(), what, "in a join already", "in one at a time")?;
            config.0.replace((Arc::downgrade(&context), place));
        }
        Ok(context)
    }

    /// Fails unless the step uses the joinable at this place next; place 0 ends the step before.
    fn expect_turn(&self, place: usize) -> Result<()> {
        let next = self.next.load(Ordering::Relaxed);
        let what = format_args!("joinable {next} of join");
        let expected = "used once in each step, in the order of the joinables";
        check(place == next, what, "left out of a step", expected)
    }

    /// Fails once this rank has learned that another is out of inputs.
    fn go_on(&self) -> Result<()> {
        if !self.terminated.load(Ordering::Relaxed) {
            return Ok(());
        }
        let message =
            "Detected at least one rank that exhausted inputs. Throwing across all ranks.";
        Err(ended(&self.group, message.into()))
    }

    /// Tells the others about a training that has failed, unless it failed because of them.
    fn end<T, E: From<Error> + Display>(&self, outcome: Result<T, E>) -> Result<T, E> {
        let outcome = outcome.and_then(|outcome| {
            // The training may have ignored that error.
            self.go_on().and_then(|()| self.expect_turn(0))?;
            Ok(outcome)
        });
        match self.terminated.load(Ordering::Relaxed) {
            true => outcome,
            false => self.group.or_report_first(outcome),
        }
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        self.group.inner.in_join.store(NONE, Ordering::Relaxed);
    }
}

impl ProcessGroup {
    /// Refuses an exchange that ranks without inputs would not take part in.
    pub(crate) fn refuse_in_join(&self, what: &str) -> Result<()> {
        let is_alone = self.inner.in_join.load(Ordering::Relaxed) != SHADOWS;
        let found = "used within a join that does not cover it";
        let expected = "covered by it, or used with throw_on_early_termination: ranks that run \
                        out of inputs would leave the others waiting";
        check(is_alone, what, found, expected)
    }
}

/// Tells the ranks without inputs that this one still has some, or whether its backward pass will exchange gradients.
pub(crate) fn announce(group: &ProcessGroup, value: bool) -> Result<Work> {
    let work = group.engine().all_reduce(&flag(group, value), ReduceOp::Sum, group.call());
    work.map_err(|error| group.failed(OPERATION, &error))
}

/// The number of ranks whose flag is set.
pub(crate) fn count(group: &ProcessGroup, own: bool) -> Result<f64> {
    let mut sum = flag(group, own);
    group.on_host().all_reduce(&mut sum, ReduceOp::Sum)?;
    Ok(sum.f_double_value(&[0])?)
}

fn flag(group: &ProcessGroup, value: bool) -> Tensor {
    Tensor::from_slice(&[f32::from(u8::from(value))]).to(group.exchange_device())
}

fn ended(group: &ProcessGroup, message: String) -> Error {
    failed_collective(group.job_rank(), OPERATION, message, None)
}
