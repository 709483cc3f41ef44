//! How much of a step a device does nothing.

use std::time::Duration;
use tch_parallel::LogicalDevice;
use tch_parallel::data_parallel::Event;

/// The time within a step in which nothing was done on a replica's `device`: neither by the thread
/// of the replica nor by the main thread, which copies to it or gathers there.
///
/// `events` are those of the step, which took `step` in all.
pub(super) fn of_replica(events: &[Event], device: LogicalDevice, step: Duration) -> Duration {
    step.saturating_sub(busy(events.iter().filter(|event| event.device == device)))
}

/// The time within a step in which only others did something: the main thread works for the first
/// device, `home`, unless it waits for a replica.
pub(super) fn of_home(events: &[Event], home: LogicalDevice) -> Duration {
    busy(events).saturating_sub(busy(events.iter().filter(|event| event.device == home)))
}

/// How long at least one of the events went on.
fn busy<'a>(events: impl IntoIterator<Item = &'a Event>) -> Duration {
    let mut spans: Vec<_> =
        events.into_iter().map(|event| (event.start, event.start + event.duration)).collect();
    spans.sort_unstable();
    let mut busy = Duration::ZERO;
    let mut until = Duration::ZERO;
    for (start, end) in spans {
        // What two spans have in common counts once.
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
    fn a_replica_is_idle_where_none_of_its_spans_is() {
        // 10 to 40 without a gap, 60 to 70, and what another device does.
        let events = [
            event(1, 60, 10),
            event(1, 10, 20),
            event(1, 15, 5),
            event(1, 25, 15),
            event(0, 0, 99),
        ];
        let idle =
            |device| of_replica(&events, LogicalDevice::Cpu(device), Duration::from_millis(100));
        assert_eq!(idle(1), Duration::from_millis(60));
        assert_eq!(idle(2), Duration::from_millis(100));
    }

    #[test]
    fn the_first_device_is_idle_while_only_others_work() {
        // It waits from 30 to 45, and from 80 on for 5.
        let events = [event(0, 10, 20), event(1, 5, 40), event(2, 80, 5), event(0, 60, 5)];
        let idle = |events: &[Event]| of_home(events, LogicalDevice::Cpu(0));
        assert_eq!(idle(&events), Duration::from_millis(5 + 15 + 5));
        assert_eq!(idle(&[]), Duration::ZERO);
    }
}
