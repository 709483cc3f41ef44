//! What happens to a block's parameters during a step: `FSDPParamGroup`.

use super::schedule::{Member, Schedule};
use super::{gathering::gather, mesh::Mesh, parameter::Parameter, reduction::mean_of_part};
use crate::distributed::{collectives::Pending, group::ProcessGroup};
use crate::{Error, Result, check, profiler::record_function};
use c10d_sys::autograd::hook_gradients;
use c10d_sys::backward_hooks::{after_backward, before_backward, in_backward};
use c10d_sys::tensor::{grad_enabled, is_view};
use std::sync::{Arc, Mutex, Weak};
use std::{collections::HashMap, slice::from_mut};
use tch::{Kind, Tensor, no_grad};
use tch_parallel_base::lock;

/// The parameters of a block that do not belong to a block inside it. They are gathered, freed and reduced together.
pub(super) struct Unit {
    /// The block's name in the store; empty for the whole model.
    pub name: String,
    /// The kind in which gradients are reduced, if it is not their own.
    reduce_kind: Option<Kind>,
    mesh: Mesh,
    pub schedule: Arc<Schedule<Unit>>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    parameters: Vec<Parameter>,
    is_whole: bool,
    /// The parts that this rank has kept after a forward pass, and the ranks that have the others.
    kept: Option<(ProcessGroup, Vec<Tensor>)>,
    stage: Stage,
    /// A prefetch.
    gathering: Option<Pending<()>>,
    /// The places of its forward passes in the schedule's order.
    post_forward_places: Vec<usize>,
    settings: Settings,
}

/// What the user can change.
#[derive(Default)]
pub(super) struct Settings {
    /// The ranks among which the parameters are divided after a forward pass. If `None`, they stay whole.
    pub post_forward_group: Option<ProcessGroup>,
    pub reshard_after_backward: bool,
    pub syncs_gradients: bool,
    /// The units to gather while this one's forward pass runs.
    pub forward_prefetches: Vec<Weak<Unit>>,
    /// And its backward pass. If empty, the one whose backward pass comes next.
    pub backward_prefetches: Vec<Weak<Unit>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Default)]
enum Stage {
    #[default]
    Idle,
    Backward,
    /// The backward pass is over, and its gradients are reduced.
    Reduced,
}

impl Unit {
    pub fn new(
        name: String,
        parameters: Vec<Parameter>,
        post_forward_group: Option<ProcessGroup>,
        reduce_kind: Option<Kind>,
        mesh: &Mesh,
        schedule: &Arc<Schedule<Unit>>,
    ) -> Arc<Self> {
        let settings = Settings {
            post_forward_group,
            reshard_after_backward: true,
            syncs_gradients: true,
            ..Default::default()
        };
        let state = State { parameters, settings, ..Default::default() };
        let (mesh, schedule, state) = (mesh.clone(), Arc::clone(schedule), Mutex::new(state));
        Arc::new(Unit { name, reduce_kind, mesh, schedule, state })
    }

    pub fn set(&self, set: impl FnOnce(&mut Settings)) {
        set(&mut lock(&self.state).settings);
    }

    /// Starts to gather the units that `of` selects, and returns whether there were any.
    fn prefetch_chosen(&self, of: impl FnOnce(&Settings) -> &[Weak<Unit>]) -> Result<bool> {
        let chosen = of(&lock(&self.state).settings).to_vec();
        chosen.iter().filter_map(Weak::upgrade).try_for_each(|unit| unit.prefetch())?;
        Ok(!chosen.is_empty())
    }

    /// Makes the parameters whole. A collective unless they already are.
    pub fn unshard(&self) -> Result<()> {
        let mut state = lock(&self.state);
        if !self.is_due(&mut state)? {
            return Ok(());
        }
        self.schedule.waiting(|| match state.gathering.take() {
            Some(gathering) => gathering.wait(),
            None => self.gather(&mut state, false)?.wait(),
        })?;
        state.is_whole = true;
        Ok(())
    }

    /// Starts to gather the parameters for a later `unshard`.
    fn prefetch(&self) -> Result<()> {
        let mut state = lock(&self.state);
        if self.is_due(&mut state)? && state.gathering.is_none() {
            state.gathering = Some(self.gather(&mut state, true)?);
        }
        Ok(())
    }

    /// Whether the parameters must be gathered before use.
    fn is_due(&self, state: &mut State) -> Result<bool> {
        state.parameters.iter_mut().try_for_each(Parameter::freeze_like_shard)?;
        let is_stale = state.parameters.iter().any(Parameter::is_stale);
        if let Some(stale) = state.gathering.take_if(|_| is_stale) {
            stale.wait()?;
        }
        if is_stale {
            // The optimizer has stepped since.
            self.free(state)?;
        }
        Ok(!state.is_whole && !state.parameters.is_empty())
    }

    fn gather(&self, state: &mut State, is_async: bool) -> Result<Pending<()>> {
        state.parameters.iter().try_for_each(Parameter::check)?;
        let (group, parts) = match state.kept.take() {
            Some(kept) => kept,
            None => {
                let parts = state.parameters.iter().map(|it| it.part.f_to_kind(it.whole_kind()));
                (self.mesh.shard.clone(), no_grad(|| parts.collect::<Result<_, _>>())?)
            }
        };
        let wholes = {
            let pool = &mut lock(&self.schedule.pool);
            let parameters = state.parameters.iter_mut();
            parameters.map(|it| it.allocate(pool, group.world_size())).collect::<Result<_>>()?
        };
        let group = ProcessGroup { is_async, ..group };
        self.recorded("FSDP::all_gather", || gather(&group, wholes, &parts))
    }

    /// A range in the profiler's trace, with PyTorch's name and the block's.
    fn recorded<R>(&self, range: &str, body: impl FnOnce() -> Result<R>) -> Result<R> {
        let block = if self.name.is_empty() { String::new() } else { format!(" ({})", self.name) };
        record_function(&format!("{range}{block}"), body)?
    }

    /// Frees the whole parameters, and gives their memory back to the system.
    pub fn reshard(&self) -> Result<()> {
        let mut state = lock(&self.state);
        state.is_whole = false;
        (state.kept, state.gathering) = (None, None);
        state.parameters.iter_mut().try_for_each(|parameter| parameter.free().map(drop))
    }

    /// Frees the whole parameters, whose memory the next ones take.
    fn free(&self, state: &mut State) -> Result<()> {
        // A failed gather may have made some of them whole.
        state.is_whole = false;
        (state.kept, state.gathering) = (None, None);
        for parameter in &mut state.parameters {
            if let Some(block) = parameter.free()? {
                lock(&self.schedule.pool).give_back(block);
            }
        }
        Ok(())
    }

    /// Gathers the parameters. Their gradients will be reduced as soon as those of `inputs` are known.
    pub fn pre_forward(self: &Arc<Self>, inputs: &mut [Tensor]) -> Result<()> {
        let found = format_args!("inside a CheckpointWrapper, around the block {:?}", self.name);
        let expected = "outside it: shard the block, and wrap what is inside";
        check(!in_backward(), "FullyShard", found, expected)?;
        let found = format_args!("without a root, around the block {:?}", self.name);
        let expected = "given the whole model, with FullyShard::root";
        check(self.schedule.is_complete(), "FullyShard", found, expected)?;
        self.unshard()?;
        self.prefetch_chosen(|it| &it.forward_prefetches)?;
        if !inputs.is_empty() {
            let unit = Arc::clone(self);
            after_backward(inputs, move || unit.schedule.kept(unit.post_backward()))
                .map_err(Error::engine("forward"))?;
        }
        Ok(())
    }

    /// Frees the parameters. They will be gathered again before the backward pass from `outputs`.
    pub fn post_forward(self: &Arc<Self>, outputs: &mut [Tensor]) -> Result<()> {
        let mut state = lock(&self.state);
        if let Some(group) = state.settings.post_forward_group.clone() {
            let is_smaller = group.world_size() < self.mesh.shard.world_size();
            let parts = state.parameters.iter().map(|it| it.part_among(&group));
            let parts = (state.is_whole && is_smaller).then(|| parts.collect::<Result<_>>());
            let parts = parts.transpose()?;
            self.free(&mut state)?;
            state.kept = parts.map(|parts| (group, parts));
        }
        let outputs = outputs.iter_mut().filter(|output| output.requires_grad());
        let outputs: Vec<_> = outputs.filter(|_| grad_enabled()).collect();
        if outputs.is_empty() {
            return Ok(());
        }
        // A unit without parameters has nothing to prefetch.
        if !state.parameters.is_empty() {
            let place = self.schedule.note_forward(self);
            state.post_forward_places.push(place);
        }
        for output in outputs {
            if is_view(output) {
                // Its graph, with any hook there, would be left out once the view is changed in place.
                let view = [output.shallow_clone()];
                hook_gradients(from_mut(output), &view, |gradients, _| Ok(gradients))
                    .map_err(Error::engine("forward"))?;
            }
            let unit = Arc::clone(self);
            before_backward(output, move || unit.schedule.kept(unit.pre_backward()))
                .map_err(Error::engine("forward"))?;
        }
        Ok(())
    }

    fn pre_backward(&self) -> Result<()> {
        self.schedule.watch_backward()?;
        if std::mem::replace(&mut lock(&self.state).stage, Stage::Backward) == Stage::Backward {
            // The hook of another output has already run.
            return Ok(());
        }
        self.unshard()?;
        let place = lock(&self.state).post_forward_places.pop();
        if self.prefetch_chosen(|it| &it.backward_prefetches)? {
            return Ok(());
        }
        let before = place.and_then(|place| self.schedule.before(place));
        before.map_or(Ok(()), |before| before.prefetch())
    }

    /// Frees the whole parameters and reduces their gradients.
    fn post_backward(&self) -> Result<()> {
        let mut state = lock(&self.state);
        state.stage = Stage::Reduced;
        let mut gradients = Vec::new();
        let (syncs, reduce_kind) = (state.settings.syncs_gradients, self.reduce_kind);
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
        if state.settings.reshard_after_backward {
            self.free(&mut state)?;
        }
        if gradients.is_empty() {
            return Ok(());
        }
        let (places, gradients): (Vec<_>, Vec<_>) = gradients.into_iter().unzip();
        no_grad(|| {
            let mean = || mean_of_part(&self.mesh, gradients, self.reduce_kind);
            let mean = || self.recorded("FSDP::post_backward_reduce", mean);
            let own = self.schedule.waiting(mean)?;
            let mut begin = 0;
            for place in places {
                let parameter = &mut state.parameters[place];
                let length = parameter.part.numel() as i64;
                parameter.add_gradient(&own.f_narrow(0, begin, length)?)?;
                begin += length;
            }
            Ok(())
        })
    }

    /// Copies this rank's rows from whole parameters.
    pub fn load(&self, whole: &HashMap<String, Tensor>) -> Result<()> {
        for parameter in &mut lock(&self.state).parameters {
            parameter.load(fitting(whole, &parameter.name, &parameter.whole.size())?)?;
        }
        Ok(())
    }

    /// This rank's rows of all parameters, with the names and shapes of the whole ones.
    pub fn shards(&self) -> Vec<(String, Vec<i64>, Tensor)> {
        let state = lock(&self.state);
        let shard = |it: &Parameter| (it.name.clone(), it.whole.size(), it.part.shallow_clone());
        state.parameters.iter().map(shard).collect()
    }
}

/// The entry of a dict, which must have this shape.
pub(super) fn fitting<'a>(
    whole: &'a HashMap<String, Tensor>,
    name: &str,
    size: &[i64],
) -> Result<&'a Tensor> {
    let given = whole.get(name);
    given.filter(|given| given.size() == size).ok_or_else(|| {
        let found = match given {
            Some(given) => format!("a dict with {name} of shape {:?}", given.size()),
            None => format!("a dict without {name}"),
        };
        Error::argument("state_dict", found, format!("one with {name} of shape {size:?}"))
    })
}

impl Member for Unit {
    fn finish_backward(&self) -> Result<()> {
        let unused = lock(&self.state).gathering.take();
        if let Some(unused) = unused {
            unused.wait()?;
            self.free(&mut lock(&self.state))?;
        }
        if lock(&self.state).stage != Stage::Reduced {
            // Its input required no gradient, or its output was not used.
            self.post_backward()?;
        }
        let mut state = lock(&self.state);
        state.stage = Stage::Idle;
        state.post_forward_places.clear();
        Ok(())
    }

    fn reset(&self) {
        let mut state = lock(&self.state);
        state.stage = Stage::Idle;
        state.post_forward_places.clear();
        for parameter in &mut state.parameters {
            // PyTorch also drops what earlier passes have accumulated. The pass's own error says more.
            let _ = no_grad(|| parameter.take_gradient());
        }
        let _ = self.free(&mut state);
    }
}
