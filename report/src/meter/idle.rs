//! How long a device is idle in a step.

use std::time::Duration;
use tch_parallel::{LogicalDevice, data_parallel::Event};

/// The time within the step of these `events` in which a replica's `device` was not idle: used by the replica's thread,
/// or by the main thread, which copies to it or gathers there.
pub(super) fn busy_time(events: &[Event], device: LogicalDevice) -> Duration {
    busy(events.iter().filter(|event| event.device == device))
}

/// The time in which only others worked: the main thread works for `home`, except while it waits for a replica.
pub(super) fn of_home(events: &[Event], home: LogicalDevice) -> Duration {
    busy(events).saturating_sub(busy(events.iter().filter(|event| event.device == home)))
}

/// How long at least one of the events was in progress.
fn busy<'a>(events: impl IntoIterator<Item = &'a Event>) -> Duration {
    let mut spans: Vec<_> =
        events.into_iter().map(|event| (event.start, event.start + event.duration)).collect();
    spans.sort_unstable();
    let mut busy = Duration::ZERO;
    let mut until = Duration::ZERO;
    for (start, end) in spans {
        // Where two spans overlap, the time counts once.
        busy += end.saturating_sub(start.max(until));
        until = until.max(end);
    }
    busy
}

#[cfg(test)]
mod tests {
    use super::*;
    use tch_parallel::data_parallel::Step;

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
    fn a_replica_is_busy_while_any_of_its_spans_lasts() {
        // Busy from 10 to 40 without a gap and from 60 to 70; the rest is another device's.
        let spans = [(1, 60, 10), (1, 10, 20), (1, 15, 5), (1, 25, 15), (0, 0, 99)];
        let events = spans.map(|(device, start, duration)| event(device, start, duration));
        let busy = |device| busy_time(&events, LogicalDevice::Cpu(device));
        assert_eq!(busy(1), Duration::from_millis(40));
        assert_eq!(busy(2), Duration::ZERO);
    }

    #[test]
    fn the_first_device_is_idle_while_only_others_work() {
        // It waits from 30 to 45 and from 80 to 85.
        let events = [event(0, 10, 20), event(1, 5, 40), event(2, 80, 5), event(0, 60, 5)];
        let idle = |events: &[Event]| of_home(events, LogicalDevice::Cpu(0));
        assert_eq!(idle(&events), Duration::from_millis(5 + 15 + 5));
        assert_eq!(idle(&[]), Duration::ZERO);
    }
}
