//! How long a run took to begin, and how long its steps take.

use serde::{Deserialize, Serialize};
use std::{collections::VecDeque, rc::Rc, time::Duration, time::UNIX_EPOCH};
use tch_parallel::{Event, Result};

/// Collects the times and memory that a run's last line of metrics reports.
///
/// ```
/// use std::time::Duration;
/// use report::Timing;
///
/// let mut timing = Timing::default();
/// for milliseconds in [90, 10, 30] {
///     timing.step_took(Duration::from_millis(milliseconds));
/// }
/// assert_eq!(timing.summary().step_seconds_median, Some(0.03));
/// ```
#[derive(Debug, Default)]
pub struct Timing {
    first_step_unix_seconds: Option<f64>,
    steps: Vec<Duration>,
    /// Steps that a device has not ended yet, oldest first.
    in_flight: VecDeque<(Rc<Event>, Event)>,
}

/// The fields of the event `end`.
#[derive(Debug, Serialize, Deserialize)]
pub struct Summary {
    /// When the first step ended, in seconds since 1970. Together with the time at which the
    /// program was started, this shows how long it took to begin. `null` if there was no step.
    pub first_step_unix_seconds: Option<f64>,
    /// When the run ended, in seconds since 1970.
    pub end_unix_seconds: f64,
    /// The median time of a step, without loading its batch. `null` if there was no step.
    pub step_seconds_median: Option<f64>,
    /// The peak resident memory of this process. `null` if the system does not report it.
    pub peak_rss_bytes: Option<u64>,
}

impl Timing {
    /// Records a step that has just ended and took `duration`.
    pub fn step_took(&mut self, duration: Duration) {
        self.first_step_unix_seconds.get_or_insert_with(unix_seconds);
        self.steps.push(duration);
    }

    /// Records a step from one event to the other, when the device has come so far. Waits only for the first step, to
    /// know when it ends. Fails if the device's work has.
    pub fn step_between(&mut self, begun: impl Into<Rc<Event>>, ended: Event) -> Result<()> {
        if self.first_step_unix_seconds.is_none() {
            ended.synchronize()?;
        }
        self.in_flight.push_back((begun.into(), ended));
        self.take_ended(false)
    }

    /// Records the steps that the device has ended, or if it `waits`, all.
    fn take_ended(&mut self, waits: bool) -> Result<()> {
        if let (true, Some((_, last))) = (waits, self.in_flight.back())
            && !last.query()?
        {
            last.synchronize()?;
        }
        while let Some((begun, ended)) = self.in_flight.front()
            && ended.query()?
        {
            let took = begun.elapsed_time(ended)?;
            self.in_flight.pop_front();
            self.step_took(took);
        }
        Ok(())
    }

    /// The mean of the steps after the first `warm_up`, or the last one if there are no more. Zero
    /// without steps. Steps that a device has not ended are left out.
    pub fn mean_after(&self, warm_up: usize) -> Duration {
        let counted = &self.steps[warm_up.min(self.steps.len().saturating_sub(1))..];
        counted.iter().sum::<Duration>() / counted.len().max(1) as u32
    }

    /// The summary at the end of a run. Waits for steps that a device has not ended.
    pub fn summary(mut self) -> Summary {
        // If the device has failed, whoever reads its numbers reports it.
        let _ = self.take_ended(true);
        Summary {
            first_step_unix_seconds: self.first_step_unix_seconds,
            end_unix_seconds: unix_seconds(),
            step_seconds_median: median(self.steps.iter().map(Duration::as_secs_f64)),
            peak_rss_bytes: peak_rss_bytes(),
        }
    }
}

/// The value in the middle; of an even number, the larger of the two there. `None` without values.
///
/// ```
/// assert_eq!(report::median([0.5, 0.1, 9.0]), Some(0.5));
/// ```
pub fn median(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<_> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

/// The seconds since 1970: the clock that all processes of a host share.
pub fn unix_seconds() -> f64 {
    UNIX_EPOCH.elapsed().unwrap_or_default().as_secs_f64()
}

/// The kernel's high-water mark, from /proc/self/status (proc_pid_status(5)).
fn peak_rss_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_of_a_device_takes_from_one_event_to_the_other() {
        let mut timing = Timing::default();
        let device = tch::Device::cuda_if_available();
        let [begun, ended] = [(); 2].map(|()| Event::record(device).unwrap());
        ended.synchronize().unwrap();
        let took = begun.elapsed_time(&ended).unwrap();
        timing.step_between(begun, ended).unwrap();
        let summary = timing.summary();
        assert_eq!(summary.step_seconds_median, Some(took.as_secs_f64()));
        assert!(summary.first_step_unix_seconds.unwrap() <= summary.end_unix_seconds);
    }

    #[test]
    fn a_run_without_steps_has_no_median() {
        assert_eq!(Timing::default().summary().step_seconds_median, None);
    }
}
