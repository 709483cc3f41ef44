//! How long a worker's steps take, if the user chooses: asynchronous updates are about slow workers.

use std::str::FromStr;
use std::thread::sleep;
use std::time::{Duration, Instant};
use tch_parallel::{Error, Result};

/// A rank that is slower than the others, `RANK:MS`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Straggler {
    /// Which rank of the job.
    pub rank: usize,
    /// How much longer each of its steps takes.
    pub delay: Duration,
}

impl FromStr for Straggler {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let straggler = || {
            let (rank, ms) = text.split_once(':')?;
            let delay = Duration::from_millis(ms.parse().ok()?);
            Some(Straggler { rank: rank.parse().ok()?, delay })
        };
        straggler().ok_or_else(|| format!("expected RANK:MS, as in 3:40, and found {text:?}"))
    }
}

/// Refuses stragglers that do not exist, or do not train.
///
/// # Errors
/// [`tch_parallel::Error::Argument`] with the ranks that do train.
pub fn check(stragglers: &[Straggler], workers: std::ops::Range<usize>) -> Result<()> {
    let Some(wrong) = stragglers.iter().find(|straggler| !workers.contains(&straggler.rank)) else {
        return Ok(());
    };
    let expected = format!("a rank that trains, from {} to {}", workers.start, workers.end - 1);
    Err(Error::argument("--straggle", format!("rank {}", wrong.rank), expected))
}

/// The least time between the beginning of a step and its gradient.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace(Duration);

impl Pace {
    /// `step` for every rank, and more for a straggler.
    pub fn new(step: Duration, stragglers: &[Straggler], rank: usize) -> Pace {
        let delays = stragglers.iter().filter(|straggler| straggler.rank == rank);
        Pace(step + delays.map(|straggler| straggler.delay).sum::<Duration>())
    }

    /// Waits until a step that began then has taken long enough.
    pub fn keep(self, begun: Instant) {
        sleep(self.0.saturating_sub(begun.elapsed()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_straggler_is_slower_than_the_others() {
        let stragglers = ["3:40".parse().unwrap()];
        let step = Duration::from_millis(10);
        assert_eq!(Pace::new(step, &stragglers, 2), Pace(Duration::from_millis(10)));
        assert_eq!(Pace::new(step, &stragglers, 3), Pace(Duration::from_millis(50)));
    }

    #[test]
    fn a_straggler_that_does_not_train_is_refused() {
        let straggler = "4:40".parse().unwrap();
        check(&[straggler], 1..5).unwrap();
        let error = check(&[straggler], 0..4).unwrap_err().to_string();
        assert_eq!(error, "--straggle is rank 4, but must be a rank that trains, from 0 to 3");
    }

    #[test]
    fn what_is_no_straggler_is_refused() {
        for text in ["3", "3:", ":40", "3:-1", "a:40"] {
            let error = text.parse::<Straggler>().unwrap_err();
            assert_eq!(error, format!("expected RANK:MS, as in 3:40, and found {text:?}"));
        }
    }
}
