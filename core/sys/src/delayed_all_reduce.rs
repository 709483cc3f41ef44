//! Gradients that are averaged together, apart from a reducer's buckets.

use crate::backward_hooks::{after_accumulation, at_end_of_backward, before_backward};
use crate::{Error, Result, Work, arithmetic::div_number_, lock, tensor::set_grad};
use std::sync::{Arc, Mutex, Weak};
use std::{collections::BTreeSet, mem};
use tch::{TchError, Tensor};

/// Averages the gradients of some parameters, all in one tensor, when that of another parameter is complete:
/// `delay_all_reduce_named_params` and `param_to_hook_all_reduce` in PyTorch's `distributed.py`.
///
/// The parameters' hooks refer to it weakly: once it is dropped, they do nothing.
#[expect(missing_debug_implementations, reason = "it contains a closure")]
pub struct DelayedAllReduce(Arc<Mutex<State>>);

type AllReduce = dyn Fn(&Tensor) -> Result<Work> + Send;

struct State {
    /// Each with its name and its gradient, a view into `flat`.
    parameters: Vec<(String, Tensor, Tensor)>,
    /// Those whose gradients no backward pass has made since `prepare`.
    missing: BTreeSet<usize>,
    flat: Tensor,
    world_size: usize,
    all_reduce: Box<AllReduce>,
    /// Whether the next backward pass exchanges gradients.
    sync: bool,
    work: Option<Work>,
}

impl DelayedAllReduce {
    /// Hooks into the gradients of `delayed`, all of one kind, and of `hooked`, which a [`Reducer`](crate::Reducer)
    /// must have. `all_reduce` starts a sum over the ranks.
    pub fn new(
        delayed: Vec<(String, Tensor)>,
        (hooked_name, hooked): (String, Tensor),
        world_size: usize,
        all_reduce: impl Fn(&Tensor) -> Result<Work> + Send + 'static,
    ) -> Result<Self> {
        let numel = delayed.iter().map(|(_, parameter)| parameter.numel() as i64).sum::<i64>();
        let flat = Tensor::f_zeros([numel], (hooked.kind(), hooked.device())).map_err(from_tch)?;
        let (mut parameters, mut start) = (Vec::new(), 0);
        for (name, parameter) in &delayed {
            let len = parameter.numel() as i64;
            let view = flat.f_narrow(0, start, len).and_then(|part| part.f_view_as(parameter));
            parameters.push((name.clone(), parameter.shallow_clone(), view.map_err(from_tch)?));
            start += len;
        }
        let (all_reduce, missing, work) = (Box::new(all_reduce), BTreeSet::new(), None);
        let state = State { parameters, missing, flat, world_size, all_reduce, sync: false, work };
        let state = Arc::new(Mutex::new(state));
        for (index, (_, parameter)) in delayed.into_iter().enumerate() {
            let own = Arc::downgrade(&state);
            let note = move |state: &mut State| {
                state.missing.remove(&index);
                Ok(())
            };
            before_backward(&parameter, move || run(&own, note))?;
        }
        let own = Arc::downgrade(&state);
        after_accumulation(&hooked, move || {
            run(&own, |state| state.start(&hooked_name))?;
            let own = Weak::clone(&own);
            at_end_of_backward(move || run(&own, State::wait))
        })?;
        Ok(DelayedAllReduce(state))
    }

    /// Call this after each forward pass with a graph; `sync` tells whether its gradients are exchanged.
    pub fn prepare(&self, sync: bool) {
        let mut state = lock(&self.0);
        state.sync = sync;
        state.missing = (0..state.parameters.len()).collect();
        // Left over if the backward pass before has failed.
        state.work = None;
    }
}

impl State {
    /// `_delayed_all_reduce_hook`. Also does what `_clear_grad_buffer` does, so gradients may be cleared before.
    fn start(&mut self, hooked: &str) -> Result<()> {
        // Once for each prepared pass, as in a reducer.
        if !mem::take(&mut self.sync) {
            return Ok(());
        }
        if let Some(index) = self.missing.first() {
            return Err(Error::misuse(format!(
                "the gradient of {} is not complete when that of {hooked} starts the all-reduce: set \
                 param_to_hook_all_reduce to a parameter whose gradient comes later, and delay only what each loss uses",
                self.parameters[*index].0
            )));
        }
        for (_, parameter, view) in &mut self.parameters {
            let gradient = parameter.grad();
            // A copy of the view to itself does nothing.
            match gradient.defined() {
                true => view.f_copy_(&gradient),
                false => view.f_zero_().map(drop),
            }
            .map_err(from_tch)?;
            set_grad(parameter, view)?;
        }
        div_number_(&mut self.flat, self.world_size as f64).map_err(from_tch)?;
        self.work = Some((self.all_reduce)(&self.flat)?);
        Ok(())
    }

    fn wait(&mut self) -> Result<()> {
        self.work.take().map_or(Ok(()), |work| work.wait(None))
    }
}

fn from_tch(error: TchError) -> Error {
    error.to_string().into()
}

/// Runs a part of a backward pass that exchanges gradients. Its errors are those of the pass.
fn run(state: &Weak<Mutex<State>>, part: impl FnOnce(&mut State) -> Result<()>) -> Result<()> {
    let Some(state) = state.upgrade() else { return Ok(()) };
    part(&mut lock(&state)).map_err(|error| {
        Error::new(error.kind(), format!("delay_all_reduce_named_params: {}", error.message()))
    })
}
