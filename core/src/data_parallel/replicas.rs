//! The replicas of a model and the passes they make: what [`DataParallel`](super::DataParallel) and
//! [`DataParallelModel`](super::DataParallelModel) have in common.

use super::error_check_mutex::{ErrorCheckGuard, ErrorCheckMutex, lock};
use super::scatter::{length, scatter_detached};
use super::trace::{Span, Step, Trace};
use super::{parallel_apply::Workers, replicate::ModelVariables};
use crate::{Devices, Error, LogicalDevice, Result, Tensors, check};
use c10d_sys::tensor::grad_enabled;
use std::sync::{Arc, Mutex};
use std::{collections::HashSet, fmt, ops::Deref};
use tch::Tensor;
use tch::nn::{Path, VarStore};
use tch_parallel_base::{random::RandomState, random::drawing_nothing, tensors::list};

/// A model and its replicas, and what they need to run on their devices.
pub(super) struct Replicas<M> {
    /// The first is the original.
    modules: Vec<ErrorCheckMutex<M>>,
    /// What does not depend on the model's type. Outputs that wait for their backward pass share it.
    pub(super) shared: Arc<SharedParts>,
}

pub(super) struct SharedParts {
    pub(super) devices: Devices,
    pub(super) workers: Workers,
    /// Locked during every pass: the replicas do one thing at a time, whichever thread asks.
    variables: ErrorCheckMutex<ModelVariables>,
    /// What is recorded of the passes, and the backward pass of a loss that has not reached the replicas yet.
    recording: Mutex<(Trace, Option<Span>)>,
}

/// The outputs of all replicas, each still on its device, in the order of the devices.
#[must_use = "a DataParallelCriterion makes a loss of it"]
pub struct SplitOutputs<O> {
    pub(super) parts: Vec<O>,
    pub(super) inputs: Vec<SplitInput>,
    /// How many rows of the inputs each got.
    pub(super) rows: Vec<i64>,
    pub(super) shared: Arc<SharedParts>,
}

impl<O> SplitOutputs<O> {
    /// The outputs in the order of the devices, for inspection.
    pub fn parts(&self) -> &[O] {
        &self.parts
    }
}

impl<O: fmt::Debug> fmt::Debug for SplitOutputs<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SplitOutputs").field("parts", &self.parts).finish_non_exhaustive()
    }
}

/// An input that requires a gradient, and its chunks, which get that gradient in pieces.
pub(super) struct SplitInput {
    pub(super) whole: Tensor,
    pub(super) chunks: Vec<Tensor>,
    /// The dimension along which it was split.
    pub(super) dim: i64,
}

impl<M: Send> Replicas<M> {
    /// Builds the model in `vs`, and a replica on each further device.
    pub fn new(build: impl Fn(&Path<'_>) -> M, vs: &VarStore, devices: &Devices) -> Result<Self> {
        let before: HashSet<_> = vs.variables().into_keys().collect();
        let random = RandomState::of(&[])?;
        let original = {
            let _on = devices.first().guard()?;
            build(&vs.root())
        };
        let mut variables = ModelVariables::new(vs, &before, devices.first())?;
        let mut modules = vec![ErrorCheckMutex::new(original)];
        for device in devices.iter().skip(1) {
            let _on = device.guard()?;
            let store = VarStore::new(device.into());
            // What it draws on the CPU besides its variables is the same, too.
            let replica = drawing_nothing(&[device.into()], || {
                random.restore().map(|()| build(&store.root()))
            })??;
            variables.add_replica(&store, device)?;
            modules.push(ErrorCheckMutex::new(replica));
        }
        let shared = SharedParts {
            devices: devices.clone(),
            workers: Workers::new(devices)?,
            variables: ErrorCheckMutex::new(variables),
            recording: Mutex::new((Trace::off(), None)),
        };
        Ok(Replicas { modules, shared: Arc::new(shared) })
    }

    /// Scatters the inputs, updates as many replicas as there are chunks, and runs them.
    pub fn apply<I: Tensors + Send, O: Tensors + Send>(
        &self,
        inputs: &I,
        dim: i64,
        f: impl Fn(&M, I) -> O + Sync,
    ) -> Result<SplitOutputs<O>> {
        let shared = &self.shared;
        // During a pass it is the pass that holds the module.
        let is_free = shared.is_in_a_pass() || !self.modules[0].is_locked_by_this_thread();
        let found = "used while a guard of its `module()` exists";
        check(is_free, "model", found, "used after the guard is dropped")?;
        let mut pass = shared.begin_pass()?;
        let variables = &mut pass.value;
        let trace = shared.trace();
        // ANCHOR: apply
        // A type without a size holds no inputs, of which every device could have a part.
        let chunks = match size_of::<I>() {
            0 => vec![inputs.shallow_clone()],
            _ => scatter_detached(inputs, &shared.devices, dim, &trace)?,
        };
        let split = if grad_enabled() { split_inputs(inputs, &chunks, dim) } else { Vec::new() };
        let rows = chunks.iter().filter_map(|chunk| length(list(chunk).first()?, dim)).collect();
        variables.replicate(&shared.devices, chunks.len(), &trace)?;
        let jobs = self.modules.iter().zip(chunks).collect();
        let parts = shared.workers.parallel_apply("forward", jobs, |device, (module, chunk)| {
            let mut span = trace.begin(Step::ParallelApply, device);
            let module = module.lock().ok_or_else(in_a_pass)?;
            let output = f(&module.value, chunk);
            list(&output).iter().for_each(|tensor| span.shape(tensor));
            span.end();
            Ok(output)
        })?;
        // ANCHOR_END: apply
        Ok(SplitOutputs { parts, inputs: split, rows, shared: shared.clone() })
    }

    pub fn module(&self) -> ModuleGuard<'_, M> {
        assert!(
            !self.shared.is_in_a_pass(),
            "module() is called within a forward pass of the same model, which has locked it"
        );
        match self.modules[0].lock() {
            Some(guard) => ModuleGuard(guard),
            None => panic!("module() is called while this thread already has the module"),
        }
    }
}

/// Access to the original module. Meanwhile forward passes on other threads wait, and one on this thread is an error.
#[derive(Debug)]
pub struct ModuleGuard<'a, M>(ErrorCheckGuard<'a, M>);

impl<M> Deref for ModuleGuard<'_, M> {
    type Target = M;

    fn deref(&self) -> &M {
        &self.0.value
    }
}

impl SharedParts {
    /// Waits until the replicas are idle. Until the guard is dropped, no other pass starts.
    pub(super) fn begin_pass(&self) -> Result<ErrorCheckGuard<'_, ModelVariables>> {
        if self.workers.own_this_thread() {
            return Err(in_a_pass());
        }
        self.variables.lock().ok_or_else(in_a_pass)
    }

    fn is_in_a_pass(&self) -> bool {
        self.workers.own_this_thread() || self.variables.is_locked_by_this_thread()
    }

    pub(super) fn trace(&self) -> Trace {
        lock(&self.recording).0.clone()
    }

    pub(super) fn set_trace(&self, trace: &Trace) {
        lock(&self.recording).0 = trace.clone();
    }

    /// Starts the trace's record of a loss's backward pass.
    pub(super) fn begin_loss(&self, step: Step, device: LogicalDevice) {
        let (trace, loss) = &mut *lock(&self.recording);
        *loss = Some(trace.begin(step, device));
    }

    pub(super) fn end_loss(&self) {
        let loss = lock(&self.recording).1.take();
        loss.into_iter().for_each(Span::end);
    }
}

fn in_a_pass() -> Error {
    let expected = "another model, because its replicas are busy";
    Error::argument("model", "used within its own forward pass", expected)
}

/// Makes leaves of the chunks of every input that requires a gradient and is cut off from its graph.
fn split_inputs<I: Tensors>(inputs: &I, chunks: &[I], dim: i64) -> Vec<SplitInput> {
    let chunks: Vec<_> = chunks.iter().map(list).collect();
    let chunks_of = |index: usize| chunks.iter().map(move |part| &part[index]);
    let split = |(index, whole): (usize, Tensor)| {
        let is_cut_off = whole.requires_grad() && !chunks_of(index).any(Tensor::requires_grad);
        is_cut_off.then(|| {
            let chunks = chunks_of(index).map(|chunk| chunk.set_requires_grad(true)).collect();
            SplitInput { whole, chunks, dim }
        })
    };
    list(inputs).into_iter().enumerate().filter_map(split).collect()
}
