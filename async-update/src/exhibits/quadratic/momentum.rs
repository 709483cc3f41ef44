//! The momentum that is in asynchronous updates, fitted to the mean course of w.

use super::workers::{descend, queue};
use crate::exhibits::least_squares::least_squares;
use serde::Serialize;
use std::{iter::once, thread::scope};

/// How long a step is, ηh: small enough that single runs come to rest, with eight workers too.
pub const RATE: f64 = 0.25;

/// Runs are averaged in this many groups, whose differences give the standard error.
const GROUPS: usize = 20;

/// Runs of the simulated queue in each group.
const RUNS: usize = 2_500;

/// w at the beginning and after each update, a mean over many runs.
pub type Trajectory = Vec<f64>;

#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Estimate {
    pub value: f64,
    pub error: f64,
}

/// The momentum and the step of M workers in theory (Mitliagkas 2016, "Asynchrony begets Momentum").
///
/// Of M workers with exponential work times, any is the next to finish with probability 1/M. Let a be
/// the mean of the gradients at work. The mean update is -ηa; it replaces one gradient of M by one at
/// the new w, so that a becomes (1 - 1/M) a + (1/M) ∇f(w). Hence, averaged over all runs,
///
///   w_{t+1} - w_t = (1 - 1/M) (w_t - w_{t-1}) - (η/M) ∇f(w_t),
///
/// momentum SGD with another learning rate. At the beginning a is ∇f(w_0): the first update is
/// -η∇f(w_0), not M times shorter as with momentum from rest.
pub fn theory(workers: usize) -> [f64; 2] {
    let one_of = 1.0 / workers as f64;
    [1.0 - one_of, RATE * one_of]
}

// ANCHOR: explicit
/// w under explicit momentum: the theory as an algorithm without any randomness.
pub fn explicit(workers: usize, updates: usize) -> Trajectory {
    let [momentum, step] = theory(workers);
    let mut trajectory = vec![1.0, 1.0 - RATE];
    while let [.., before, now] = trajectory[..]
        && trajectory.len() <= updates
    {
        trajectory.push(now + momentum * (now - before) - step * now);
    }
    trajectory
}
// ANCHOR_END: explicit

/// The simulated queue, a trajectory for each group of runs.
pub fn simulated(workers: usize, updates: usize) -> Vec<Trajectory> {
    in_groups(RUNS, |run| {
        let order = queue(workers, run as u64).take(updates);
        once(1.0).chain(descend(workers, RATE, order, |workers| workers.w)).collect()
    })
}

/// The mean of each group of runs, numbered through all groups. Groups run at the same time.
pub fn in_groups(runs: usize, run: impl Fn(usize) -> Trajectory + Sync) -> Vec<Trajectory> {
    let mut groups = vec![Trajectory::new(); GROUPS];
    scope(|scope| {
        let run = &run;
        for (number, group) in groups.iter_mut().enumerate() {
            let numbers = number * runs..(number + 1) * runs;
            scope.spawn(move || *group = mean(&numbers.map(run).collect::<Vec<_>>()));
        }
    });
    groups
}

/// The mean of trajectories of the same length.
pub fn mean(trajectories: &[Trajectory]) -> Trajectory {
    let sum = |index: usize| trajectories.iter().map(|w| w[index]).sum::<f64>();
    (0..trajectories[0].len()).map(|index| sum(index) / trajectories.len() as f64).collect()
}

/// The coefficients of w_{t+1} - w_t = momentum · (w_t - w_{t-1}) - step · w_t that fit the mean of
/// all groups best; how the fits of the groups differ tells the standard errors.
pub fn fit(groups: &[Trajectory]) -> [Estimate; 2] {
    let all = momentum_and_step(&mean(groups));
    let each: Vec<_> = groups.iter().map(|group| momentum_and_step(group)).collect();
    let count = each.len() as f64;
    [0, 1].map(|index| {
        let mean = each.iter().map(|fit| fit[index]).sum::<f64>() / count;
        let squares = each.iter().map(|fit| (fit[index] - mean).powi(2)).sum::<f64>();
        Estimate { value: all[index], error: (squares / (count - 1.0) / count).sqrt() }
    })
}

/// The momentum and the step that describe a trajectory best.
fn momentum_and_step(trajectory: &[f64]) -> [f64; 2] {
    let row = |w: &[f64]| [w[1] - w[0], -w[1], w[2] - w[1]];
    least_squares(&trajectory.windows(3).map(row).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_over_all_orders_of_two_workers_is_explicit_momentum() {
        const UPDATES: usize = 8;
        let runs = (0..1 << UPDATES).map(|order: usize| {
            let turns = (0..UPDATES).map(|bit| order >> bit & 1);
            once(1.0).chain(descend(2, RATE, turns, |state| state.w)).collect()
        });
        let mean = mean(&runs.collect::<Vec<_>>());
        for (all, theory) in mean.into_iter().zip(explicit(2, UPDATES)) {
            // Sums of 256 numbers up to 1, in f64.
            assert!((all - theory).abs() < 1e-12, "{all}, not {theory}");
        }
    }
}
