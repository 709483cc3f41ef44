//! The bound on the regret of Stale Synchronous Parallel (Ho 2013), beside what is measured.
//!
//! P workers make T updates together, number t with η_t = σ/√t. The clock of a worker is the number
//! of its updates; nobody's may be ahead of another's by more than s. Update t is computed at x̃_t, which
//! holds all updates of clocks that lie more than s behind, and perhaps newer ones. Of convex functions f_t
//! with subgradients no longer than L, when ½‖x_t - x*‖² stays below F², and with
//! σ = F / (L √(2(s+1)P)), the regret (1/T) Σ [f_t(x̃_t) - f_t(x*)] is at most 4FL √(2(s+1)P/T).
//!
//! The constant can be checked by hand. Let x_t be what holds exactly the updates before t, and
//! κ = 2(s+1)P, which is more than x_t and x̃_t differ by. Then the sum of ⟨g_t, x̃_t - x*⟩, which is
//! not less than the regret's, has three parts:
//!
//! - ½ Σ η_t L², at most σL²√T, which is FL√(κT)/κ;
//! - Σ (‖x_t - x*‖² - ‖x_{t+1} - x*‖²) / 2η_t, at most F²√T/σ, which is FL√(κT);
//! - Σ ⟨g_t, x̃_t - x_t⟩, at most κL² Σ η_t, about 2κσL²√T, which is 2FL√(κT).
//!
//! That is 3 + 1/κ times FL√(κT), and for a T far above κ what "about" leaves out fits into the rest of 4.

use super::workers::exponential;
use anyhow::{Result, ensure};
use rand::Rng;
use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};
use serde::{Deserialize, Serialize};
use std::{array, collections::BTreeMap, time::Duration};

pub const WORKERS: usize = 4;
/// Updates of each of them.
const CLOCKS: usize = 10_000;
/// All updates, the paper's T.
pub const UPDATES: usize = WORKERS * CLOCKS;
/// How many parameters there are.
const DIMENSIONS: usize = 5;
/// The longest subgradient: each is one of the unit vectors below, or its opposite.
const L: f64 = 1.0;
/// Half the squared distance from the minimum stays below F². It begins at ½.
const F: f64 = 1.0;
/// How much longer than the others' the work of worker 0 takes.
const STRAGGLER: u32 = 5;

type Point = [f64; DIMENSIONS];

/// x*.
const MINIMUM: Point = [0.0; DIMENSIONS];
/// x_1, at a distance of 1.
const START: Point = [1.0, 0.0, 0.0, 0.0, 0.0];

/// The unit vector a and the number e of f_t(x) = |⟨a, x⟩ - e|, the absolute error of a linear model.
type Component = (Point, f64);

/// ⟨a, x⟩ - e: its absolute value is f_t(x), and its sign times a is a subgradient.
fn error((a, e): &Component, x: &Point) -> f64 {
    dot(a, x) - e
}

fn dot(a: &Point, b: &Point) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn add(a: Point, b: Point) -> Point {
    array::from_fn(|i| a[i] + b[i])
}

/// The T functions, in the order of the updates. For each there is one with the opposite e: the sum of
/// the two, and so that of all, is least at x* = 0.
fn components(random: &mut ChaCha8Rng) -> Vec<Component> {
    let mut components: Vec<Component> = Vec::new();
    while components.len() < UPDATES {
        let a: Point = array::from_fn(|_| random.random_range(-1.0..1.0));
        let length = dot(&a, &a).sqrt();
        let (a, e): Component = (a.map(|x| x / length), random.random_range(0.0..0.5));
        components.extend([(a, e), (a, -e)]);
    }
    // Shuffled, by Fisher and Yates.
    for last in (1..components.len()).rev() {
        components.swap(last, random.random_range(0..=last));
    }
    components
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Regret {
    /// The mean of f_t(x̃_t) - f_t(x*) over all updates.
    pub per_update: f64,
    /// By how many clocks a worker was ahead of another at most.
    pub lead: usize,
}

/// The paper's bound.
pub fn bound(staleness: usize) -> f64 {
    4.0 * F * L * (2.0 * (staleness + 1) as f64 * WORKERS as f64 / UPDATES as f64).sqrt()
}

/// What workers see of each other's updates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub enum View {
    /// No more than they must: clocks that lie more than s behind, and their own.
    Oldest,
    /// All that has been done when they read: what a parameter server gives.
    Newest,
}

/// Trains with a staleness bound. Work takes exponentially distributed times, and a worker that is
/// `staleness` clocks ahead of the slowest waits for it.
pub fn run(staleness: usize, view: View) -> Result<Regret> {
    let mut random = ChaCha8Rng::seed_from_u64(0);
    let components = components(&mut random);
    let sigma = F / (L * (2.0 * (staleness + 1) as f64 * WORKERS as f64).sqrt());
    let mut server = Server::new();
    // When each worker that is at work will be done, and where it computes the subgradient: the paper's x̃_t.
    let mut working = BTreeMap::new();
    let mut now = Duration::ZERO;
    let (mut regret, mut lead) = (0.0, 0);
    loop {
        let slowest = (0..WORKERS).map(|worker| server.clock(worker)).min().unwrap_or_default();
        for worker in 0..WORKERS {
            let at_work = working.keys().any(|&(_, other)| other == worker);
            let ahead = server.clock(worker) - slowest;
            if !at_work && ahead <= staleness && server.clock(worker) < CLOCKS {
                let factor = if worker == 0 { STRAGGLER } else { 1 };
                let due = now + factor * exponential(&mut random);
                working.insert((due, worker), server.read(worker, staleness, view));
                lead = lead.max(ahead);
            }
        }
        let Some(((due, worker), at)) = working.pop_first() else { break };
        now = due;
        let number = server.clock(worker) * WORKERS + worker;
        let component = &components[number];
        let error_at = error(component, &at);
        regret += error_at.abs() - error(component, &MINIMUM).abs();
        let eta = sigma / ((number + 1) as f64).sqrt();
        server.add(worker, component.0.map(|a| -eta * (error_at.signum() * a)));
    }
    let farthest = server.farthest();
    ensure!(
        farthest <= F * F,
        "half the squared distance from the minimum grew to {farthest}; the bound holds up to F² = {}",
        F * F
    );
    Ok(Regret { per_update: regret / UPDATES as f64, lead })
}

/// The parameters, as the sum of the updates of all workers.
struct Server {
    /// For each worker the sum of its updates before each of its clocks.
    sums: [Vec<Point>; WORKERS],
}

impl Server {
    fn new() -> Server {
        Server { sums: array::from_fn(|_| vec![[0.0; DIMENSIONS]]) }
    }

    fn clock(&self, worker: usize) -> usize {
        self.sums[worker].len() - 1
    }

    /// The parameters with the updates of each worker before a clock, and no others.
    fn before(&self, clock: impl Fn(usize) -> usize) -> Point {
        (0..WORKERS).fold(START, |x, worker| add(x, self.sums[worker][clock(worker)]))
    }

    fn read(&self, worker: usize, staleness: usize, view: View) -> Point {
        let seen = self.clock(worker).saturating_sub(staleness);
        self.before(|other| match view {
            View::Oldest if other != worker => seen,
            _ => self.clock(other),
        })
    }

    fn add(&mut self, worker: usize, update: Point) {
        let sum = self.sums[worker][self.clock(worker)];
        self.sums[worker].push(add(sum, update));
    }

    /// The most that half the squared distance of an x_t from the minimum has been, when all updates are made.
    fn farthest(&self) -> f64 {
        // Workers whose numbers are below that of t's have made their update of this clock.
        let x = |t: usize| self.before(|worker| t / WORKERS + usize::from(worker < t % WORKERS));
        (0..=UPDATES).map(|t| 0.5 * dot(&x(t), &x(t))).fold(0.0, f64::max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_minimum_is_where_it_is_said_to_be() {
        let components = components(&mut ChaCha8Rng::seed_from_u64(0));
        let loss = |x: &Point| components.iter().map(|f| error(f, x).abs()).sum::<f64>();
        for direction in 0..DIMENSIONS {
            for step in [-0.1, 0.1] {
                let mut x = MINIMUM;
                x[direction] += step;
                assert!(loss(&x) > loss(&MINIMUM));
            }
        }
    }

    #[test]
    fn without_staleness_all_that_must_be_seen_is_what_the_clocks_before_have_done() {
        let mut server = Server::new();
        let ones = [1.0; DIMENSIONS];
        (0..WORKERS).for_each(|worker| server.add(worker, ones));
        server.add(1, ones);
        assert_eq!(server.read(0, 0, View::Oldest), add(START, ones.map(|x| x * 4.0)));
        assert_eq!(server.read(0, 0, View::Newest), add(START, ones.map(|x| x * 5.0)));
        // Worker 1 need not see what the others did in clock 0, but does see its own.
        assert_eq!(server.read(1, 2, View::Oldest), add(START, ones.map(|x| x * 2.0)));
    }
}
