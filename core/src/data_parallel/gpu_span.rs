//! When something begins and ends on a GPU: `torch.cuda.Event`.
//!
//! Calls only queue their work. To learn when it is done, the host could wait for it, but then the GPU would be idle
//! until the host has queued more. Events in the stream take the time instead, and are read after the step.

use c10d_sys::Error;
use c10d_sys::stream::{Event, Stream, waiting};
use std::time::{Duration, Instant};

/// What a GPU does between two events.
#[derive(Debug)]
pub(super) struct GpuSpan {
    pub(super) device: usize,
    pub(super) begin: Event,
    pub(super) end: Event,
}

/// A place in the work of a GPU's current stream.
pub(super) fn mark(device: usize) -> Result<Event, Error> {
    Event::record(Stream::current(device)?, true)
}

/// Relates the times of GPUs to those of the host.
pub(super) struct GpuClock {
    /// Times are measured from here.
    pub(super) began: Instant,
    /// For each device that was asked for, a place in its work and when that was reached.
    pub(super) now: Vec<(usize, Event, Duration)>,
}

impl GpuClock {
    /// When the span began, and how long it took. Waits until it has ended.
    pub(super) fn read(&mut self, span: &GpuSpan) -> Result<(Duration, Duration), Error> {
        waiting(|| span.end.synchronize())??;
        let duration = span.begin.elapsed_time(&span.end)?;
        let (now, time) = self.now(span.device)?;
        let ago = span.begin.elapsed_time(now)?;
        Ok((time.saturating_sub(ago), duration))
    }

    fn now(&mut self, device: usize) -> Result<(&Event, Duration), Error> {
        let known = self.now.iter().position(|(other, ..)| *other == device);
        let index = match known {
            Some(index) => index,
            None => {
                let now = mark(device)?;
                waiting(|| now.synchronize())??;
                self.now.push((device, now, self.began.elapsed()));
                self.now.len() - 1
            }
        };
        let (_, now, time) = &self.now[index];
        Ok((now, *time))
    }
}
