//! The same workers as threads that really wait, and share w under a lock.

use super::momentum::{GROUPS, RATE, Trajectory, mean};
use super::workers::exponential;
use anyhow::{Result, anyhow};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use std::sync::{Barrier, Mutex, PoisonError};
use std::thread::{scope, sleep};
use std::time::Duration;

/// The mean time of a gradient: long beside the 0.1 ms or so by which a sleep ends late,
/// which would make the times less random than exponential ones.
const WORK: Duration = Duration::from_millis(5);

/// Runs in each group. The groups run at the same time: their threads sleep nearly always.
const RUNS: usize = 40;

/// A trajectory for each group of runs.
pub fn really_run(workers: usize, updates: usize, seed: u64) -> Result<Vec<Trajectory>> {
    let group = |group: usize| -> Result<Trajectory> {
        let first = seed.wrapping_add((group * RUNS * workers) as u64);
        let runs = (0..RUNS)
            .map(|index| run(workers, updates, first.wrapping_add((index * workers) as u64)));
        Ok(mean(runs.collect::<Result<Vec<_>>>()?))
    };
    scope(|scope| {
        let groups: Vec<_> = (0..GROUPS).map(|number| scope.spawn(move || group(number))).collect();
        groups
            .into_iter()
            .map(|group| group.join().map_err(|_| anyhow!("a group of runs panicked"))?)
            .collect()
    })
}

/// w at the beginning and after each update of a single run.
fn run(workers: usize, updates: usize, seed: u64) -> Result<Trajectory> {
    let trajectory = Mutex::new(vec![1.0]);
    let begin = Barrier::new(workers);
    let work = |worker: usize| {
        let mut random = ChaCha8Rng::seed_from_u64(seed.wrapping_add(worker as u64));
        let mut read = 1.0;
        begin.wait();
        loop {
            sleep(WORK.mul_f64(exponential(&mut random).as_secs_f64()));
            let gradient = read;
            let mut trajectory = trajectory.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(&now) = trajectory.last().filter(|_| trajectory.len() <= updates) else {
                break;
            };
            read = now - RATE * gradient;
            trajectory.push(read);
        }
    };
    scope(|scope| {
        for worker in 0..workers {
            scope.spawn(move || work(worker));
        }
    });
    Ok(trajectory.into_inner().unwrap_or_else(PoisonError::into_inner))
}
