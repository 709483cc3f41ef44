//! Which device worked when.

use anyhow::Result;
use std::time::{Duration, Instant};
use tch::Cuda;
use tch_parallel::LogicalDevice;

/// A piece of work on one device.
#[derive(Debug)]
pub struct Span {
    /// What was done.
    pub part: &'static str,
    /// Where.
    pub device: LogicalDevice,
    /// From the beginning of the record.
    pub start: Duration,
    pub duration: Duration,
}

/// Records pieces of work.
#[derive(Debug)]
pub struct Spans {
    began: Instant,
    spans: Vec<Span>,
}

impl Spans {
    /// Begins to record.
    pub fn new() -> Self {
        Spans { began: Instant::now(), spans: Vec::new() }
    }

    /// Does `work` with `device` as the current device, and notes how long that took.
    pub fn on<R>(
        &mut self,
        part: &'static str,
        device: LogicalDevice,
        work: impl FnOnce() -> Result<R>,
    ) -> Result<R> {
        let _on = device.guard()?;
        let start = self.began.elapsed();
        let result = work()?;
        if let LogicalDevice::Cuda(index) = device {
            // A GPU is only told what to do; it has not done it yet.
            Cuda::synchronize(index as i64);
        }
        let duration = self.began.elapsed().saturating_sub(start);
        self.spans.push(Span { part, device, start, duration });
        Ok(result)
    }

    /// What was recorded, in its order.
    pub fn into_vec(self) -> Vec<Span> {
        self.spans
    }
}

/// How long a device worked.
pub fn busy(spans: &[Span], device: LogicalDevice) -> Duration {
    spans.iter().filter(|span| span.device == device).map(|span| span.duration).sum()
}

/// The most devices that worked at the same time.
pub fn at_once(spans: &[Span]) -> usize {
    let works_at = |span: &Span, time| span.start <= time && time < span.start + span.duration;
    let working = |time| spans.iter().filter(|span| works_at(span, time)).count();
    // Where most work, one of them has just begun.
    spans.iter().map(|span| working(span.start)).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_that_overlap_are_counted_together_and_those_that_touch_are_not() {
        let span = |device, start, duration| Span {
            part: "work",
            device: LogicalDevice::Cpu(device),
            start: Duration::from_millis(start),
            duration: Duration::from_millis(duration),
        };
        let in_turn = [span(0, 0, 5), span(1, 5, 5), span(0, 10, 5)];
        assert_eq!(at_once(&in_turn), 1);
        assert_eq!(busy(&in_turn, LogicalDevice::Cpu(0)), Duration::from_millis(10));
        assert_eq!(at_once(&[span(0, 0, 5), span(1, 4, 5)]), 2);
    }
}
