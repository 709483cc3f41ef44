//! What happened in a step: when, on which device, and how much was copied.

use crate::LogicalDevice;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tch::Tensor;

/// One part of a training step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Step {
    /// A chunk of the batch goes to its device.
    Scatter,
    /// The parameters and buffers go to a replica.
    Replicate,
    /// A replica's forward pass.
    ParallelApply,
    /// The outputs are copied to one device.
    Gather,
    /// The loss, and its gradient with respect to the outputs.
    Loss,
    /// A slice of the outputs' gradient goes to a replica: the backward pass of gather.
    ScatterGradients,
    /// A replica's backward pass.
    Backward,
    /// A replica's gradients are added to the original's: the backward pass of replicate.
    ReduceGradients,
    /// The optimizer updates the original.
    OptimizerStep,
}

impl Step {
    /// All parts, in the order of a step.
    pub const ALL: [Step; 9] = [
        Step::Scatter,
        Step::Replicate,
        Step::ParallelApply,
        Step::Gather,
        Step::Loss,
        Step::ScatterGradients,
        Step::Backward,
        Step::ReduceGradients,
        Step::OptimizerStep,
    ];
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Step::Scatter => "scatter",
            Step::Replicate => "replicate",
            Step::ParallelApply => "parallel_apply",
            Step::Gather => "gather",
            Step::Loss => "loss",
            Step::ScatterGradients => "scatter gradients",
            Step::Backward => "backward",
            Step::ReduceGradients => "reduce gradients",
            Step::OptimizerStep => "optimizer step",
        })
    }
}

/// One part of one step on one device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// What was done.
    pub step: Step,
    /// Where it was done, or where the copy went.
    pub device: LogicalDevice,
    /// The shapes of the inputs and outputs; empty for a model's parameters.
    pub shapes: Vec<Vec<i64>>,
    /// Bytes copied from another device.
    pub bytes_copied: usize,
    /// When it began, measured from the start of the trace.
    pub start: Duration,
    /// How long it took.
    pub duration: Duration,
}

/// Records events; clones share one list. PyTorch's `torch.profiler` records operators, this the
/// parts of a step.
///
/// ```
/// use tch::{kind::FLOAT_CPU, Tensor, nn::{self, ModuleT, VarStore}};
/// use tch_parallel::Devices;
/// use tch_parallel::data_parallel::{DataParallel, Step, Trace};
///
/// let devices: Devices = "2xcpu".parse()?;
/// let vs = VarStore::new(devices.first().into());
/// let model = DataParallel::new(|p| nn::linear(p, 4, 3, Default::default()), &vs, &devices)?;
/// let trace = Trace::new();
/// model.set_trace(&trace);
/// model.forward_t(&Tensor::ones([8, 4], FLOAT_CPU), true);
///
/// let copied = |event: &tch_parallel::data_parallel::Event| event.bytes_copied;
/// let events = trace.events();
/// let scattered = events.iter().filter(|event| event.step == Step::Scatter);
/// assert_eq!(scattered.map(copied).sum::<usize>(), 4 * 4 * 4); // four rows go to cpu:1
/// # Ok::<(), tch_parallel::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Trace {
    /// `None` if nothing is recorded.
    recording: Option<Arc<Recording>>,
}

#[derive(Debug)]
struct Recording {
    began: Instant,
    events: Mutex<Vec<Event>>,
}

impl Trace {
    /// Starts recording.
    #[expect(clippy::new_without_default, reason = "a clock begins to run")]
    pub fn new() -> Self {
        let recording = Recording { began: Instant::now(), events: Mutex::new(Vec::new()) };
        Trace { recording: Some(Arc::new(recording)) }
    }

    pub(super) fn off() -> Self {
        Trace { recording: None }
    }

    /// Records the time that `f` takes: for the parts of a step that are the caller's own code.
    pub fn span<R>(&self, step: Step, device: LogicalDevice, f: impl FnOnce() -> R) -> R {
        let span = self.begin(step, device);
        let result = f();
        span.end();
        result
    }

    /// The events so far, in the order in which they began.
    pub fn events(&self) -> Vec<Event> {
        let mut events = self.recording.as_ref().map_or_else(Vec::new, |recording| {
            recording.events.lock().unwrap_or_else(PoisonError::into_inner).clone()
        });
        events.sort_by_key(|event| (event.start, event.step, event.device));
        events
    }

    /// Deletes the recorded events.
    pub fn clear(&self) {
        if let Some(recording) = &self.recording {
            recording.events.lock().unwrap_or_else(PoisonError::into_inner).clear();
        }
    }

    pub(super) fn begin(&self, step: Step, device: LogicalDevice) -> Span {
        Span {
            open: self.recording.as_ref().map(|recording| OpenSpan {
                recording: recording.clone(),
                event: Event {
                    step,
                    device,
                    shapes: Vec::new(),
                    bytes_copied: 0,
                    start: recording.began.elapsed(),
                    duration: Duration::ZERO,
                },
            }),
        }
    }
}

/// An event that has begun. It is recorded when it ends, but not if an error interrupts it.
pub(super) struct Span {
    open: Option<OpenSpan>,
}

struct OpenSpan {
    recording: Arc<Recording>,
    event: Event,
}

impl Span {
    pub(super) fn shape(&mut self, tensor: &Tensor) {
        if let Some(open) = &mut self.open {
            open.event.shapes.push(tensor.size());
        }
    }

    /// Adds the bytes of a tensor, unless it is already on the destination.
    pub(super) fn copied(&mut self, tensor: &Tensor, destination: LogicalDevice) {
        if let Some(open) = &mut self.open
            && LogicalDevice::of(tensor) != destination
        {
            open.event.bytes_copied += tensor.numel() * tensor.kind().elt_size_in_bytes();
        }
    }

    pub(super) fn end(self) {
        if let Some(OpenSpan { recording, mut event }) = self.open {
            if let LogicalDevice::Cuda(index) = event.device {
                // GPU work is asynchronous: wait until it is done.
                tch::Cuda::synchronize(index as i64);
            }
            event.duration = recording.began.elapsed().saturating_sub(event.start);
            recording.events.lock().unwrap_or_else(PoisonError::into_inner).push(event);
        }
    }
}
