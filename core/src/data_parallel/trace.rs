//! What happened in a step: when, on which device, and how much was copied.

use super::gpu_span::{GpuClock, GpuSpan, mark};
use crate::LogicalDevice;
use c10d_sys::stream;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use std::{collections::HashMap, fmt};
use tch::Tensor;
use tch_parallel_base::lock;

/// Declares the parts of a step, each with its name.
macro_rules! steps {
    ($($(#[$about:meta])* $Step:ident = $name:literal,)+) => {
        /// One part of a training step.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Step {
            $($(#[$about])* $Step,)+
        }

        impl Step {
            /// All parts, in the order of a step.
            pub const ALL: [Step; 9] = [$(Step::$Step),+];
        }

        impl fmt::Display for Step {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(match self { $(Step::$Step => $name,)+ })
            }
        }
    };
}

steps! {
    /// A chunk of the batch goes to its device.
    Scatter = "scatter",
    /// The parameters and buffers go to a replica.
    Replicate = "replicate",
    /// A replica's forward pass.
    ParallelApply = "parallel_apply",
    /// The outputs are copied to one device.
    Gather = "gather",
    /// The loss, and its gradient with respect to the outputs.
    Loss = "loss",
    /// A slice of the outputs' gradient goes to a replica: the backward pass of gather.
    ScatterGradients = "scatter gradients",
    /// A replica's backward pass.
    Backward = "backward",
    /// A replica's gradients are added to the original's: the backward pass of replicate.
    ReduceGradients = "reduce gradients",
    /// The optimizer updates the original.
    OptimizerStep = "optimizer step",
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
    /// When it began, measured from the start of the trace. On a GPU, when its work began there.
    pub start: Duration,
    /// How long it took. On a GPU, until its work was done.
    pub duration: Duration,
}

/// Records events; clones share one list. PyTorch's `torch.profiler` records operators, this the parts of a step. On
/// GPUs, CUDA's events take the times, and nothing waits for a GPU before [`events`](Self::events) is called.
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
    /// Each with where its times are if it was on a GPU and they have not been read yet.
    events: Mutex<Vec<(Event, Option<GpuSpan>)>>,
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

    /// The events so far, in the order in which they began. Waits for the GPUs that had a part in them.
    pub fn events(&self) -> Vec<Event> {
        let Some(recording) = &self.recording else { return Vec::new() };
        let mut clock = GpuClock { began: recording.began, now: HashMap::new() };
        let mut recorded = lock(&recording.events);
        for (event, on_gpu) in recorded.iter_mut() {
            // If a GPU fails, its work itself says so.
            if let (Some(device), Some(span)) = (gpu(event.device), on_gpu.take())
                && let Ok(times) = clock.read(device, span)
            {
                (event.start, event.duration) = times;
            }
        }
        let mut events: Vec<_> = recorded.iter().map(|(event, _)| event.clone()).collect();
        events.sort_by_key(|event| (event.start, event.step, event.device));
        events
    }

    /// Deletes the recorded events.
    pub fn clear(&self) {
        if let Some(recording) = &self.recording {
            lock(&recording.events).clear();
        }
    }

    pub(super) fn begin(&self, step: Step, device: LogicalDevice) -> Span {
        Span(self.recording.as_ref().map(|recording| {
            let begin = gpu(device).and_then(|index| mark(index).ok());
            let start = recording.began.elapsed();
            let (shapes, duration) = (Vec::new(), Duration::ZERO);
            let event = Event { step, device, shapes, bytes_copied: 0, start, duration };
            OpenSpan { recording: recording.clone(), event, begin }
        }))
    }
}

pub(super) fn gpu(device: LogicalDevice) -> Option<usize> {
    if let LogicalDevice::Cuda(index) = device { Some(index) } else { None }
}

/// An event that has begun. It is recorded when it ends, but not if an error interrupts it.
pub(super) struct Span(Option<OpenSpan>);

struct OpenSpan {
    recording: Arc<Recording>,
    event: Event,
    /// On a GPU.
    begin: Option<stream::Event>,
}

impl Span {
    pub(super) fn shape(&mut self, tensor: &Tensor) {
        if let Some(open) = &mut self.0 {
            open.event.shapes.push(tensor.size());
        }
    }

    /// Adds the bytes of a tensor, unless it is already on the destination.
    pub(super) fn copied(&mut self, tensor: &Tensor, destination: LogicalDevice) {
        if let Some(open) = &mut self.0
            && LogicalDevice::of(tensor) != destination
        {
            open.event.bytes_copied += tensor.numel() * tensor.kind().elt_size_in_bytes();
        }
    }

    pub(super) fn is_open(&self) -> bool {
        self.0.is_some()
    }

    pub(super) fn end(self) {
        let device = self.0.as_ref().and_then(|open| gpu(open.event.device));
        self.end_at(device.and_then(|index| mark(index).ok()));
    }

    /// Ends it at a place in the GPU's work.
    pub(super) fn end_at(self, end: Option<stream::Event>) {
        if let Some(OpenSpan { recording, mut event, begin }) = self.0 {
            event.duration = recording.began.elapsed().saturating_sub(event.start);
            lock(&recording.events).push((event, begin.zip(end)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use c10d_sys::pretended_cuda::{pretend, take_calls};

    #[test]
    fn a_gpu_is_waited_for_only_when_the_events_are_read() {
        if !pretend() {
            return;
        }
        let trace = Trace::new();
        take_calls();
        for step in [Step::Replicate, Step::ParallelApply] {
            trace.span(step, LogicalDevice::Cuda(1), || ());
        }
        let calls = take_calls();
        assert_eq!((calls.events, calls.waits), (4, 0));
        let events = trace.events();
        assert!(take_calls().waits > 0);
        // The pretended clock goes on by a nanosecond with each event in the stream.
        let tick = Duration::from_nanos(1);
        assert_eq!([events[0].duration, events[1].duration], [tick; 2]);
        assert_eq!(events[1].start - events[0].start, 2 * tick);
        // They are read once.
        assert_eq!((trace.events(), take_calls().waits), (events, 0));
    }
}
