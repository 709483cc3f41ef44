//! How much of a step a device does nothing.

use crate::LogicalDevice;
use crate::data_parallel::Event;
use std::time::Duration;

/// The time within a step in which nothing was done on `device`: neither by the thread of its
/// replica nor, on its behalf, by the main thread, which copies to it, gathers there, computes the
/// loss or takes the optimizer's step.
///
/// `events` are those of the step, which took `step` in all.
pub(super) fn of_replica(events: &[Event], device: LogicalDevice, step: Duration) -> Duration {
    let mut spans: Vec<_> = events
        .iter()
        .filter(|event| event.device == device)
        .map(|event| (event.start, event.start + event.duration))
        .collect();
    spans.sort_unstable();
    let mut busy = Duration::ZERO;
    let mut until = Duration::ZERO;
    for (start, end) in spans {
        // What two spans have in common counts once.
        busy += end.saturating_sub(start.max(until));
        until = until.max(end);
    }
    step.saturating_sub(busy)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data_parallel::Step;

    fn event(device: usize, start: u64, duration: u64) -> Event {
        Event {
            step: Step::ParallelApply,
            device: LogicalDevice::Cpu(device),
            shapes: Vec::new(),
            bytes_copied: 0,
            start: Duration::from_millis(start),
            duration: Duration::from_millis(duration),
        }
    }

    #[test]
    fn a_replica_is_idle_where_none_of_its_spans_is() {
        // 10 to 40 without a gap, 60 to 70, and what another device does.
        let events = [
            event(0, 60, 10),
            event(0, 10, 20),
            event(0, 15, 5),
            event(0, 25, 15),
            event(1, 0, 99),
        ];
        let idle =
            |device| of_replica(&events, LogicalDevice::Cpu(device), Duration::from_millis(100));
        assert_eq!(idle(0), Duration::from_millis(60));
        assert_eq!(idle(1), Duration::from_millis(1));
        assert_eq!(idle(2), Duration::from_millis(100));
    }
}
