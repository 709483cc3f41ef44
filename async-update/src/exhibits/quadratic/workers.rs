//! Several workers that lower one number, and the queue that says who is next.

use rand::Rng;
use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};
use std::{collections::BTreeSet, iter, time::Duration};

/// One shared parameter w, whose loss is f(w) = ½ h w², and what each worker has read of it.
///
/// One parameter is enough: a quadratic function of many falls apart into its directions, each with
/// an h of its own, and the same happens in every direction.
#[derive(Debug, Clone)]
pub struct Workers {
    pub w: f64,
    read: Vec<f64>,
}

impl Workers {
    /// All have read w = 1.
    pub fn new(workers: usize) -> Workers {
        Workers { w: 1.0, read: vec![1.0; workers] }
    }

    // ANCHOR: update
    /// A worker has computed the gradient where it read w; its step is made, and it reads w again.
    /// `rate` is ηh: the length of a step, measured by the distance to the minimum from where it was made.
    pub fn update(&mut self, worker: usize, rate: f64) {
        self.w -= rate * self.read[worker];
        self.read[worker] = self.w;
    }
    // ANCHOR_END: update

    /// How far the farthest of what workers have read is from the minimum. It says more than w, which
    /// passes 0 on its way to and fro.
    pub fn farthest(&self) -> f64 {
        self.read.iter().fold(0.0, |most, read| most.max(read.abs()))
    }
}

/// What `look` sees after each update, when workers finish in this order.
pub fn descend(
    workers: usize,
    rate: f64,
    order: impl Iterator<Item = usize>,
    look: fn(&Workers) -> f64,
) -> impl Iterator<Item = f64> {
    let mut state = Workers::new(workers);
    order.map(move |worker| {
        state.update(worker, rate);
        look(&state)
    })
}

/// Which worker finishes next, for ever: the event queue of workers whose work takes exponentially
/// distributed times with the mean of a second (Mitliagkas 2016, assumption of the queueing model).
pub fn queue(workers: usize, seed: u64) -> impl Iterator<Item = usize> {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    // When each worker will be done.
    let mut due: BTreeSet<_> = (0..workers).map(|it| (exponential(&mut random), it)).collect();
    iter::from_fn(move || {
        let (now, worker) = due.pop_first()?;
        due.insert((now + exponential(&mut random), worker));
        Some(worker)
    })
}

/// An exponentially distributed time with the mean of a second.
pub fn exponential(random: &mut ChaCha8Rng) -> Duration {
    // From 0 to below 1, so that the logarithm is finite.
    let uniform: f64 = random.random();
    Duration::from_secs_f64(-(1.0 - uniform).ln())
}
