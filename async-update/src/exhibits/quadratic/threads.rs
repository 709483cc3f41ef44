//! The same workers as threads that really wait, and share w under a lock.

use super::momentum::{RATE, Trajectory, in_groups};
use super::workers::{Workers, exponential};
use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};
use std::sync::{Barrier, Mutex, PoisonError};
use std::{thread::scope, thread::sleep, time::Duration, time::Instant};

/// The mean time of a gradient: long beside the 0.1 ms or so by which a sleep ends late, and by which a thread can be
/// overtaken by one that is due after it.
const WORK: Duration = Duration::from_millis(5);

/// Runs in each group: fewer than of the queue, since they take real time.
const RUNS: usize = 40;

/// A trajectory for each group of runs.
pub fn really_run(workers: usize, updates: usize) -> Vec<Trajectory> {
    in_groups(RUNS, |number| run(workers, updates, (number * workers) as u64))
}

/// w at the beginning and after each update of a single run.
fn run(workers: usize, updates: usize, seed: u64) -> Trajectory {
    let shared = Mutex::new((Workers::new(workers), vec![1.0]));
    let begin = Barrier::new(workers);
    let work = |worker: usize| {
        let mut random = ChaCha8Rng::seed_from_u64(seed.wrapping_add(worker as u64));
        begin.wait();
        // A thread that wakes up late makes up for it, so that a busy machine hardly changes the order of updates.
        let mut end = Instant::now();
        loop {
            end += WORK.mul_f64(exponential(&mut random).as_secs_f64());
            sleep(end.saturating_duration_since(Instant::now()));
            let mut shared = shared.lock().unwrap_or_else(PoisonError::into_inner);
            let (state, trajectory) = &mut *shared;
            if trajectory.len() > updates {
                break;
            }
            state.update(worker, RATE);
            trajectory.push(state.w);
        }
    };
    scope(|scope| {
        for worker in 0..workers {
            scope.spawn(move || work(worker));
        }
    });
    let (_, trajectory) = shared.into_inner().unwrap_or_else(PoisonError::into_inner);
    trajectory
}
