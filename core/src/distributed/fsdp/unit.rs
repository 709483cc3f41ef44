//! What happens to the parameters of a block, from one pass to the next: `FSDPParamGroup`.

use super::parameter::Parameter;
use super::schedule::{Schedule, lock};
use crate::distributed::collectives::Pending;
use crate::distributed::group::ProcessGroup;
use crate::{Error, Result};
use c10d_sys::ReduceOp;
use c10d_sys::arithmetic::div_number_;
use c10d_sys::backward_hooks::{after_backward, before_backward, in_backward};
use c10d_sys::tensor::grad_enabled;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use tch::{Kind, Tensor, no_grad};

/// The parameters of a block that no block inside it has taken. They are gathered, freed and reduced
/// together.
#[derive(Debug)]
pub(super) struct Unit {
    /// The block's name in the store; empty for the whole model.
    pub name: String,
    /// What the gradients are reduced in, unless that is their own kind.
    reduce_kind: Option<Kind>,
    group: ProcessGroup,
    schedule: Arc<Schedule>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    parameters: Vec<Parameter>,
    is_whole: bool,
    stage: Stage,
    /// What `unshard` has started and nobody has waited for.
    gathering: Option<Gathering>,
    reshard_after_forward: bool,
    reshard_after_backward: bool,
    syncs_gradients: bool,
    /// The places of its forward passes in the order of all.
    post_forward_places: Vec<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Stage {
    Idle,
    Backward,
    /// The gradients of this pass have been reduced.
    Reduced,
}

/// All ranks' parts of the parameters, one rank's after the other.
#[derive(Debug)]
enum Gathering {
    Arrived(Tensor),
    UnderWay(Pending<Tensor>),
}

impl Unit {
    pub fn new(
        name: String,
        parameters: Vec<Parameter>,
        reshard_after_forward: bool,
        reduce_kind: Option<Kind>,
        group: &ProcessGroup,
        schedule: &Arc<Schedule>,
    ) -> Arc<Self> {
        let state = State {
            parameters,
            is_whole: false,
            stage: Stage::Idle,
            gathering: None,
            reshard_after_forward,
            reshard_after_backward: true,
            syncs_gradients: true,
            post_forward_places: Vec::new(),
        };
        let (group, schedule, state) = (group.clone(), Arc::clone(schedule), Mutex::new(state));
        Arc::new(Unit { name, reduce_kind, group, schedule, state })
    }

    pub fn schedule(&self) -> &Arc<Schedule> {
        &self.schedule
    }

    pub fn set_requires_gradient_sync(&self, sync: bool) {
        lock(&self.state).syncs_gradients = sync;
    }

    pub fn set_reshard_after_backward(&self, reshard: bool) {
        lock(&self.state).reshard_after_backward = reshard;
    }

    /// Starts to gather the parameters, unless that is done or under way. Without `is_async`, other
    /// ranks are waited for at once.
    fn start_to_gather(&self, is_async: bool) -> Result<()> {
        let mut state = lock(&self.state);
        state.parameters.iter_mut().try_for_each(Parameter::freeze_like_shard)?;
        if state.is_whole && state.parameters.iter().any(Parameter::is_stale) {
            // An optimizer has made a step since.
            state.reshard()?;
        }
        if state.is_whole || state.gathering.is_some() || state.parameters.is_empty() {
            return Ok(());
        }
        state.parameters.iter().try_for_each(Parameter::check)?;
        let parts: Vec<_> = state.parameters.iter().map(Parameter::part).collect();
        let (ranks, rank) = (self.group.world_size() as i64, self.group.rank() as i64);
        let length: i64 = parts.iter().map(|part| part.numel() as i64).sum();
        let kind = state.parameters[0].whole_kind();
        let mut all = self.group.allocate_tensor(&[ranks * length], kind)?;
        let own = all.f_narrow(0, rank * length, length)?;
        no_grad(|| {
            if kind == parts[0].kind() {
                return Tensor::f_cat_out(&own, &parts, 0).map(drop);
            }
            let lengths: Vec<_> = parts.iter().map(|part| part.numel() as i64).collect();
            let places = own.f_split_with_sizes(lengths, 0)?;
            places.into_iter().zip(&parts).try_for_each(|(mut place, part)| place.f_copy_(part))
        })?;
        state.gathering = Some(if is_async {
            Gathering::UnderWay(self.group.all_gather_into_tensor_async(all, own)?)
        } else {
            self.group.all_gather_into_tensor(&mut all, &own)?;
            Gathering::Arrived(all)
        });
        Ok(())
    }

    /// Makes the parameters whole.
    pub fn unshard(&self) -> Result<()> {
        self.start_to_gather(false)?;
        let mut state = lock(&self.state);
        let all = match state.gathering.take() {
            None => return Ok(()),
            Some(Gathering::Arrived(all)) => all,
            Some(Gathering::UnderWay(pending)) => pending.wait()?,
        };
        let all = all.f_view([self.group.world_size() as i64, -1])?;
        let mut begin = 0;
        no_grad(|| {
            for parameter in &mut state.parameters {
                let length = parameter.part().numel() as i64;
                parameter.set_whole(&all.f_narrow(1, begin, length)?)?;
                begin += length;
            }
            Ok::<_, Error>(())
        })?;
        state.is_whole = true;
        Ok(())
    }

    /// Frees the whole parameters.
    pub fn reshard(&self) -> Result<()> {
        lock(&self.state).reshard()
    }

    /// Gathers, and has the gradients of all that is computed from these inputs, which need gradients,
    /// reduced as soon as they are there.
    pub fn pre_forward(self: &Arc<Self>, inputs: &mut [Tensor]) -> Result<()> {
        if in_backward() {
            return Err(Error::argument(
                "FullyShard",
                format!("around the block {:?}, which runs again in a backward pass", self.name),
                "around a CheckpointWrapper, not within one",
            ));
        }
        self.unshard()?;
        if !inputs.is_empty() {
            let unit = Arc::clone(self);
            after_backward(inputs, move || unit.schedule.kept(unit.post_backward()))
                .map_err(Error::engine("forward"))?;
        }
        Ok(())
    }

    pub fn post_forward(self: &Arc<Self>, outputs: &[Tensor]) -> Result<()> {
        let mut state = lock(&self.state);
        if state.reshard_after_forward {
            state.reshard()?;
        }
        let outputs = outputs.iter().filter(|output| output.requires_grad());
        let outputs: Vec<_> = outputs.filter(|_| grad_enabled()).collect();
        if outputs.is_empty() {
            return Ok(());
        }
        let place = self.schedule.note_forward(self);
        state.post_forward_places.push(place);
        for output in outputs {
            let unit = Arc::clone(self);
            before_backward(output, move || unit.schedule.kept(unit.pre_backward()))
                .map_err(Error::engine("forward"))?;
        }
        Ok(())
    }

    fn pre_backward(&self) -> Result<()> {
        self.schedule.watch_backward()?;
        {
            let mut state = lock(&self.state);
            // Another output's hook was first.
            if state.stage == Stage::Backward {
                return Ok(());
            }
            state.stage = Stage::Backward;
        }
        self.unshard()?;
        let place = lock(&self.state).post_forward_places.pop();
        if let Some(before) = place.and_then(|place| self.schedule.before(place)) {
            before.start_to_gather(true)?;
        }
        Ok(())
    }

    /// Frees the whole parameters, and reduces their gradients.
    fn post_backward(&self) -> Result<()> {
        let mut state = lock(&self.state);
        state.stage = Stage::Reduced;
        let mut gradients = Vec::new();
        let (syncs, reduce_kind) = (state.syncs_gradients, self.reduce_kind);
        no_grad(|| {
            for (place, parameter) in state.parameters.iter_mut().enumerate() {
                if syncs {
                    gradients.extend(parameter.take_gradient()?.map(|gradient| (place, gradient)));
                } else if let Some(kind) = reduce_kind {
                    parameter.keep_gradient(kind)?;
                }
            }
            Ok::<_, Error>(())
        })?;
        if state.reshard_after_backward {
            state.reshard()?;
        }
        if gradients.is_empty() { Ok(()) } else { no_grad(|| self.reduce(&mut state, gradients)) }
    }

    fn reduce(&self, state: &mut State, gradients: Vec<(usize, Tensor)>) -> Result<()> {
        let (places, mut gradients): (Vec<_>, Vec<_>) = gradients.into_iter().unzip();
        if let Some(kind) = self.reduce_kind {
            gradients = gradients.iter().map(|it| it.f_to_kind(kind)).collect::<Result<_, _>>()?;
        }
        let length_of = |place: &usize| state.parameters[*place].part().numel() as i64;
        let length: i64 = places.iter().map(length_of).sum();
        let (ranks, kind) = (self.group.world_size() as i64, gradients[0].kind());
        let mut all = self.group.allocate_tensor(&[ranks, length], kind)?;
        let _ = Tensor::f_internal_chunk_cat_out(&all, &gradients, 0, ranks)?;
        drop(gradients);
        let mut own = Tensor::f_empty([length], (kind, all.device()))?;
        let (before, op, after) = division(kind, ranks);
        divide(&mut all, before)?;
        let all = all.f_view([ranks * length])?;
        self.group.reduce_scatter_tensor(&mut own, &all, op)?;
        divide(&mut own, after)?;
        let mut begin = 0;
        for place in places {
            let parameter = &mut state.parameters[place];
            let length = parameter.part().numel() as i64;
            parameter.add_gradient(&own.f_narrow(0, begin, length)?)?;
            begin += length;
        }
        Ok(())
    }

    /// At the end of a backward pass.
    pub fn finish_backward(&self) -> Result<()> {
        if lock(&self.state).stage != Stage::Reduced {
            // Its input needed no gradient, or nothing that it has computed was used.
            self.post_backward()?;
        }
        let mut state = lock(&self.state);
        state.stage = Stage::Idle;
        state.post_forward_places.clear();
        // The backward pass has not used the unit after all.
        match state.gathering.take() {
            Some(Gathering::UnderWay(pending)) => pending.wait().map(drop),
            _ => Ok(()),
        }
    }

    /// After a pass that has failed.
    pub fn reset(&self) {
        let mut state = lock(&self.state);
        state.stage = Stage::Idle;
        state.post_forward_places.clear();
        state.gathering = None;
        for parameter in &mut state.parameters {
            // Of the pass that has failed, and of those before it that were not reduced. A failure of
            // that pass says more than one of this.
            let _ = no_grad(|| parameter.take_gradient());
        }
        let _ = state.reshard();
    }

    /// Takes this rank's rows of whole parameters.
    pub fn load(&self, whole: &HashMap<String, Tensor>) -> Result<()> {
        let expected = |it: &Parameter| format!("one with {} of shape {:?}", it.name, it.size());
        for parameter in &mut lock(&self.state).parameters {
            let found = match whole.get(&parameter.name) {
                Some(whole) if whole.size() == parameter.size() => {
                    parameter.load(whole)?;
                    continue;
                }
                Some(whole) => {
                    format!("a dict with {} of shape {:?}", parameter.name, whole.size())
                }
                None => format!("a dict without {}", parameter.name),
            };
            return Err(Error::argument("state_dict", found, expected(parameter)));
        }
        Ok(())
    }

    /// This rank's rows of all parameters, with the names and shapes of the whole ones.
    pub fn shards(&self) -> Vec<(String, Vec<i64>, Tensor)> {
        let state = lock(&self.state);
        let shard = |it: &Parameter| (it.name.clone(), it.size(), it.part().shallow_clone());
        state.parameters.iter().map(shard).collect()
    }
}

/// By what the gradients are divided before they are reduced, and by what after that:
/// `_get_gradient_divide_factors`. Halves of about equal size, so that 16-bit numbers neither overflow
/// nor vanish.
fn division(kind: Kind, ranks: i64) -> (f64, ReduceOp, f64) {
    if matches!(kind, Kind::Float | Kind::BFloat16) {
        return (1.0, ReduceOp::Avg, 1.0);
    }
    let mut before = 1;
    while ranks % before == 0 && ranks > before * before {
        before *= 2;
    }
    (before as f64, ReduceOp::Sum, ranks as f64 / before as f64)
}

fn divide(tensor: &mut Tensor, by: f64) -> Result<()> {
    match by == 1.0 {
        true => Ok(()),
        false => Ok(div_number_(tensor, by)?),
    }
}

impl State {
    fn reshard(&mut self) -> Result<()> {
        // Also what a gathering that has failed has made whole.
        self.is_whole = false;
        self.parameters.iter_mut().try_for_each(Parameter::free)
    }
}
