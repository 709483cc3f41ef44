//! A copy of the model on every device: `torch.nn.parallel.replicate`.

use super::module_guard::ModuleGuard;
use super::parallel_apply::Workers;
use super::scatter::{length, scatter_traced};
use super::trace::{Span, Step, Trace};
use crate::parameters::{named_buffers, named_parameters};
use crate::tensors::list;
use crate::{Devices, Error, LogicalDevice, Result, Tensors};
use c10d_sys::random::{rng_state, set_rng_state};
use c10d_sys::tensor::grad_enabled;
use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};
use tch::nn::{Path, VarStore};
use tch::{TchError, Tensor, no_grad};

/// A model and its replicas, each with what it needs to run on its device.
pub(super) struct Replicas<M> {
    /// The first is the original. A thread uses its own; the lock is how Rust can see that.
    modules: Vec<Mutex<M>>,
    /// What does not depend on the kind of model, shared with the outputs that wait for their
    /// backward pass.
    pub(super) shared: Arc<SharedParts>,
}

pub(super) struct SharedParts {
    pub(super) devices: Devices,
    pub(super) workers: Workers,
    /// One for each device, the first of which are the original's.
    pub(super) variables: Vec<Mutex<Variables>>,
    pub(super) trace: Mutex<Trace>,
    /// Held while the replicas are at work: they do one thing at a time, whoever asks for it.
    pass: Mutex<()>,
    /// The thread that holds it, which would wait for itself.
    holder: Mutex<Option<ThreadId>>,
    /// The thread that has a guard of the original.
    reader: Mutex<Option<ThreadId>>,
    /// The backward pass of a loss that has not come to the replicas yet.
    pub(super) loss_pass: Mutex<Option<Span>>,
}

/// A module's variables, in an order that all replicas share.
pub(super) struct Variables {
    names: Vec<String>,
    pub(super) parameters: Vec<Tensor>,
    buffers: Vec<Tensor>,
    /// Of a replica: the state in which each of the original's was when it was copied last.
    copied: Vec<Option<State>>,
}

/// Differs if a tensor has been written to or replaced.
#[derive(Clone, Copy, PartialEq, Eq)]
struct State {
    version: i64,
    data: usize,
}

/// What every replica has computed, and what the backward pass needs to come back from there.
pub(super) struct Applied<O> {
    pub(super) outputs: Vec<O>,
    pub(super) inputs: Vec<SplitInput>,
    /// How many rows of the inputs each has got.
    pub(super) rows: Vec<i64>,
}

/// An input that wants a gradient, and its chunks, which get it piece by piece.
pub(super) struct SplitInput {
    pub(super) whole: Tensor,
    pub(super) chunks: Vec<Tensor>,
    /// Along which it was split.
    pub(super) dim: i64,
}

impl<M: Send> Replicas<M> {
    /// Builds the model in `vs`, and a replica on each further device.
    pub(super) fn new(
        vs: &VarStore,
        devices: &Devices,
        build: impl Fn(&Path<'_>) -> M,
    ) -> Result<Self> {
        let before: HashSet<_> = vs.variables().into_keys().collect();
        let original = {
            let _on = devices.first().guard()?;
            build(&vs.root())
        };
        let variables = Variables::of(vs, &before);
        variables.check_device(devices.first())?;
        let mut modules = vec![Mutex::new(original)];
        let mut all = vec![Mutex::new(variables)];
        for device in devices.iter().skip(1) {
            let _on = device.guard()?;
            let store = VarStore::new(device.into());
            let replica = drawing_nothing(device, || build(&store.root()))?;
            let variables = Variables::of(&store, &HashSet::new());
            lock(&all[0]).check_names(&variables, device)?;
            modules.push(Mutex::new(replica));
            all.push(Mutex::new(variables));
        }
        let shared = SharedParts {
            devices: devices.clone(),
            workers: Workers::new(devices)?,
            variables: all,
            trace: Mutex::new(Trace::off()),
            pass: Mutex::new(()),
            holder: Mutex::new(None),
            reader: Mutex::new(None),
            loss_pass: Mutex::new(None),
        };
        Ok(Replicas { modules, shared: Arc::new(shared) })
    }

    /// Scatters the inputs, brings the replicas that get some up to date, and runs them.
    pub(super) fn apply<I: Tensors + Send, O: Tensors + Send>(
        &self,
        inputs: &I,
        dim: i64,
        f: impl Fn(&M, I) -> O + Sync,
    ) -> Result<Applied<O>> {
        if self.shared.is_read_by_this_thread() {
            return Err(Error::Argument {
                what: "model".into(),
                found: "used while a guard of its `module()` lives".into(),
                expected: "without one: drop it first".into(),
            });
        }
        let _alone = self.shared.alone()?;
        let trace = self.shared.trace();
        // ANCHOR: apply
        let chunks = scatter_traced(inputs, &self.shared.devices, dim, &trace)?;
        let split = if grad_enabled() { split_inputs(inputs, &chunks, dim) } else { Vec::new() };
        let rows = chunks.iter().filter_map(|chunk| length(list(chunk).first()?, dim)).collect();
        self.shared.refresh(chunks.len(), &trace)?;
        let jobs = self.modules.iter().zip(chunks).collect();
        let outputs =
            self.shared.workers.parallel_apply("forward", jobs, |device, (module, chunk)| {
                let mut span = trace.begin(Step::ParallelApply, device);
                let output = f(&lock(module), chunk);
                list(&output).iter().for_each(|tensor| span.shape(tensor));
                span.end();
                Ok(output)
            })?;
        // ANCHOR_END: apply
        Ok(Applied { outputs, inputs: split, rows })
    }

    /// The original.
    pub(super) fn module(&self) -> ModuleGuard<'_, M> {
        assert!(
            !self.shared.runs_on_this_thread(),
            "module() is called within a forward pass of the same model, which holds the module"
        );
        assert!(
            !self.shared.is_read_by_this_thread(),
            "module() is called while this thread has the module already"
        );
        ModuleGuard::new(&self.modules[0], &self.shared.reader)
    }
}

impl SharedParts {
    pub(super) fn trace(&self) -> Trace {
        lock(&self.trace).clone()
    }

    /// Waits until the replicas have nothing else to do.
    pub(super) fn alone(&self) -> Result<Alone<'_>> {
        if self.runs_on_this_thread() {
            return Err(Error::Argument {
                what: "model".into(),
                found: "used within a forward pass of its own".into(),
                expected: "another one there: its replicas are at work already".into(),
            });
        }
        let pass = lock(&self.pass);
        *lock(&self.holder) = Some(thread::current().id());
        Ok(Alone { shared: self, _pass: pass })
    }

    /// Whether this is called from within a pass.
    fn runs_on_this_thread(&self) -> bool {
        self.workers.own_this_thread() || *lock(&self.holder) == Some(thread::current().id())
    }

    /// Whether this thread has a guard of the original.
    fn is_read_by_this_thread(&self) -> bool {
        *lock(&self.reader) == Some(thread::current().id())
    }

    /// Copies the original's variables to the first `count` replicas.
    fn refresh(&self, count: usize, trace: &Trace) -> Result<()> {
        let original = lock(&self.variables[0]);
        original.check_device(self.devices.first())?;
        // Counted as well, though nothing is copied there.
        trace.begin(Step::Replicate, self.devices.first()).end();
        // ANCHOR: refresh
        for (device, copy) in self.devices.iter().zip(&self.variables).take(count).skip(1) {
            let mut span = trace.begin(Step::Replicate, device);
            let _on = device.guard()?;
            no_grad(|| {
                original.copy_to(&mut lock(copy), &mut |source| span.copied(source, device))
            })?;
            span.end();
        }
        // ANCHOR_END: refresh
        Ok(())
    }
}

/// While it lives, nobody else makes a pass.
pub(super) struct Alone<'a> {
    shared: &'a SharedParts,
    _pass: MutexGuard<'a, ()>,
}

impl Drop for Alone<'_> {
    fn drop(&mut self) {
        *lock(&self.shared.holder) = None;
    }
}

impl Variables {
    /// Those of a store that it has not had `before`.
    fn of(vs: &VarStore, before: &HashSet<String>) -> Self {
        let new = |(name, _): &(String, Tensor)| !before.contains(name);
        let (names, parameters): (Vec<_>, Vec<_>) =
            named_parameters(vs).into_iter().filter(new).unzip();
        let (buffer_names, buffers): (Vec<_>, Vec<_>) =
            named_buffers(vs).into_iter().filter(new).unzip();
        let names = [names, buffer_names].concat();
        let copied = vec![None; names.len()];
        Variables { names, parameters, buffers, copied }
    }

    fn iter(&self) -> impl Iterator<Item = (&String, &Tensor)> {
        self.names.iter().zip(self.parameters.iter().chain(&self.buffers))
    }

    fn check_device(&self, expected: LogicalDevice) -> Result<()> {
        // An empty variable lies nowhere.
        let elsewhere =
            |variable: &Tensor| variable.numel() > 0 && LogicalDevice::of(variable) != expected;
        match self.iter().find(|(_, variable)| elsewhere(variable)) {
            None => Ok(()),
            Some((name, variable)) => Err(Error::Argument {
                what: format!("variable {name}"),
                found: format!("on {}", LogicalDevice::of(variable)),
                expected: format!(
                    "on {expected}, the first device, where the original is; make and convert it \
                     under that device's guard"
                ),
            }),
        }
    }

    fn check_names(&self, replica: &Variables, device: LogicalDevice) -> Result<()> {
        if self.names == replica.names {
            return Ok(());
        }
        let missing = self.names.iter().find(|name| !replica.names.contains(name));
        let added = replica.names.iter().find(|name| !self.names.contains(name));
        Err(Error::Argument {
            what: "build".into(),
            found: match (missing, added) {
                (Some(name), _) => {
                    format!("a function that made {name} in vs, but not on {device}")
                }
                (None, Some(name)) => {
                    format!("a function that made {name} on {device}, but not in vs")
                }
                (None, None) => {
                    format!("a function that made other variables on {device} than in vs")
                }
            },
            expected: "one that makes the same variables every time; vs must not have them yet"
                .into(),
        })
    }

    fn copy_to(&self, replica: &mut Variables, note: &mut dyn FnMut(&Tensor)) -> Result<()> {
        let copies = replica.parameters.iter_mut().chain(&mut replica.buffers);
        for (((_, source), copy), copied) in self.iter().zip(copies).zip(&mut replica.copied) {
            note(source);
            let state =
                State { version: source.internal_version(), data: source.data_ptr() as usize };
            refresh(copy, source, *copied == Some(state)).map_err(Error::tensor("replicate"))?;
            *copied = Some(state);
            if copy.requires_grad() != source.requires_grad() {
                let _ = copy.set_requires_grad(source.requires_grad());
            }
        }
        Ok(())
    }
}

/// Writes the source's values to the copy.
///
/// A graph of an earlier forward pass may still need the copy. As long as the source is unchanged,
/// so is the copy, and autograd need not know that it was written: the graph stays valid. Once the
/// source has changed, autograd's version counter tells the graph.
fn refresh(
    copy: &mut Tensor,
    source: &Tensor,
    unchanged: bool,
) -> std::result::Result<(), TchError> {
    if (copy.kind(), copy.size()) != (source.kind(), source.size()) {
        // The original was converted, to half precision for example.
        return copy.f_set_data(&source.f_detach_copy()?.f_to_device(copy.device())?);
    }
    if unchanged {
        copy.f_data()?.f_copy_(source)?
    } else {
        copy.f_copy_(source)?
    };
    Ok(())
}

/// Leaves the generators as they were: the replicas' first weights are replaced by the original's,
/// and what is drawn later must not depend on the number of devices.
fn drawing_nothing<R>(device: LogicalDevice, build: impl FnOnce() -> R) -> Result<R> {
    let generators = match device {
        LogicalDevice::Cpu(_) => vec![None],
        LogicalDevice::Cuda(index) => vec![None, Some(index)],
    };
    let states = generators
        .into_iter()
        .map(|generator| Ok((generator, rng_state(generator)?)))
        .collect::<Result<Vec<_>, _>>()
        .map_err(Error::engine("get_rng_state"))?;
    let built = build();
    for (generator, state) in &states {
        set_rng_state(*generator, state).map_err(Error::engine("set_rng_state"))?;
    }
    Ok(built)
}

/// Makes leaves of the chunks of every input that wants a gradient and has lost its graph.
fn split_inputs<I: Tensors>(inputs: &I, chunks: &[I], dim: i64) -> Vec<SplitInput> {
    let chunks: Vec<_> = chunks.iter().map(list).collect();
    let chunks_of = |index: usize| chunks.iter().map(move |part| &part[index]);
    list(inputs)
        .into_iter()
        .enumerate()
        .filter(|(index, whole)| {
            whole.requires_grad() && !chunks_of(*index).any(Tensor::requires_grad)
        })
        .map(|(index, whole)| {
            let chunks = chunks_of(index).map(|chunk| chunk.set_requires_grad(true)).collect();
            SplitInput { whole, chunks, dim }
        })
        .collect()
}

/// A replica that has panicked is as good as before: its variables are refreshed before it is used.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
