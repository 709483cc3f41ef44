//! Which device works when: recorded, counted, and shown as tables and as a picture.

use anyhow::Result;
use exhibit_kit::plot;
use std::time::{Duration, Instant};
use tch::Cuda;
use tch_parallel::{Devices, LogicalDevice};

pub type Span = (LogicalDevice, plot::Span);

pub struct Spans {
    pub began: Instant,
    pub list: Vec<Span>,
}

impl Spans {
    /// Runs `work` with `device` as the current device, and records how long it takes.
    pub fn on<R>(
        &mut self,
        part: &str,
        device: LogicalDevice,
        work: impl FnOnce() -> Result<R>,
    ) -> Result<R> {
        let _on = device.guard()?;
        let start = self.began.elapsed();
        let result = work()?;
        if let LogicalDevice::Cuda(index) = device {
            // A GPU runs asynchronously: `work` has only queued its kernels.
            Cuda::synchronize(index as i64);
        }
        let duration = self.began.elapsed().saturating_sub(start);
        self.list.push((device, plot::Span { category: part.into(), start, duration }));
        Ok(result)
    }
}

pub fn busy(spans: &[Span], device: LogicalDevice) -> Duration {
    spans.iter().filter(|(on, _)| *on == device).map(|(_, span)| span.duration).sum()
}

/// The largest number of devices that work at the same time.
pub fn at_once(spans: &[Span]) -> usize {
    let works = |span: &plot::Span, time| span.start <= time && time < span.start + span.duration;
    let working = |time| spans.iter().filter(|(_, span)| works(span, time)).count();
    // The number rises only when a span begins.
    spans.iter().map(|(_, span)| working(span.start)).max().unwrap_or(0)
}

/// The flags for how a step is shown.
#[derive(Debug, clap::Args)]
pub struct Show {
    #[command(flatten)]
    pub svg: plot::SvgArgs,
    /// Omit the times, which differ from run to run.
    #[arg(long)]
    pub no_times: bool,
}

impl Show {
    /// Draws a lane for each device, if `--svg` is given. The position of a category decides its colour.
    pub fn draw(
        &self,
        title: String,
        devices: &Devices,
        categories: Vec<String>,
        spans: &[Span],
    ) -> Result<()> {
        let lane = |device: LogicalDevice| {
            let spans = spans.iter().filter(|(on, _)| *on == device);
            let spans = spans.map(|(_, span)| span.clone()).collect();
            plot::Lane { name: device.to_string(), spans }
        };
        let lanes = devices.iter().map(lane).collect();
        Ok(self.svg.save(|| plot::timeline(&plot::Timeline { title, categories, lanes }))?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_that_overlap_are_counted_together_and_those_that_touch_are_not() {
        let span = |device, start, duration| {
            let [start, duration] = [start, duration].map(Duration::from_millis);
            (LogicalDevice::Cpu(device), plot::Span { category: "work".into(), start, duration })
        };
        let in_turn = [span(0, 0, 5), span(1, 5, 5), span(0, 10, 5)];
        assert_eq!(at_once(&in_turn), 1);
        assert_eq!(busy(&in_turn, LogicalDevice::Cpu(0)), Duration::from_millis(10));
        assert_eq!(at_once(&[span(0, 0, 5), span(1, 4, 5)]), 2);
    }
}
