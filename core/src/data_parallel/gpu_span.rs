//! When something begins and ends on a GPU: `torch.cuda.Event`.
//!
//! Calls only queue their work. To learn when it is done, the host could wait for it, but then the GPU would be idle
//! until the host has queued more. Events in the stream take the time instead, and are read after the step.

use c10d_sys::Result;
use c10d_sys::stream::{Event, Stream, waiting};
use std::collections::{HashMap, hash_map::Entry};
use std::time::{Duration, Instant};

/// The events where something begins and ends on a GPU.
pub(super) type GpuSpan = (Event, Event);

/// A place in the work of a GPU's current stream.
pub(super) fn mark(device: usize) -> Result<Event> {
    Event::record(Stream::current(device)?, true)
}

/// Relates the times of GPUs to those of the host.
pub(super) struct GpuClock {
    /// Times are measured from here.
    pub(super) began: Instant,
    /// For each device that was asked for, a place in its work and when that was reached.
    pub(super) now: HashMap<usize, (Event, Duration)>,
}

impl GpuClock {
    /// When the span began on this device, and how long it took. Waits until it has ended.
    pub(super) fn read(&mut self, device: usize, span: GpuSpan) -> Result<(Duration, Duration)> {
        let (begin, end) = span;
        waiting(|| end.synchronize())??;
        let duration = begin.elapsed_time(&end)?;
        if let Entry::Vacant(unknown) = self.now.entry(device) {
            let now = mark(device)?;
            waiting(|| now.synchronize())??;
            unknown.insert((now, self.began.elapsed()));
        }
        let (now, time) = &self.now[&device];
        let ago = begin.elapsed_time(now)?;
        Ok((time.saturating_sub(ago), duration))
    }
}
