//! What PowerSGD keeps from step to step.

use super::PowerSgdOptions;
use rand_mt::Mt;
use std::collections::HashMap;
use tch::Tensor;

/// `PowerSGDState`
#[derive(Debug)]
pub(super) struct State {
    pub(super) options: PowerSgdOptions,
    /// Whether a bucket is one matrix.
    pub(super) batched: bool,
    /// The number of backward passes so far.
    pub(super) iteration: u64,
    /// The error of each bucket, by its index.
    pub(super) errors: HashMap<usize, Tensor>,
    /// The memory of each bucket's P and Q.
    pub(super) memory: HashMap<usize, [Tensor; 2]>,
    /// Numbers before and after compression.
    pub(super) numel: [u64; 2],
    seeds: Mt,
}

impl State {
    pub(super) fn new(options: PowerSgdOptions) -> State {
        State {
            options,
            batched: false,
            iteration: 0,
            errors: HashMap::new(),
            memory: HashMap::new(),
            numel: [0, 0],
            seeds: Mt::new(options.random_seed),
        }
    }

    /// A seed for random numbers, the same on every rank but new each time:
    /// `numpy.random.RandomState(random_seed).randint(1_000_000_000)`.
    pub(super) fn seed(&mut self) -> u64 {
        const LIMIT: u32 = 1_000_000_000;
        // Draws as many bits as the limit has; larger values are drawn again.
        let mask = LIMIT.next_power_of_two() - 1;
        loop {
            let number = self.seeds.next_u32() & mask;
            if number < LIMIT {
                return number.into();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_are_those_of_numpy() {
        // numpy.random.RandomState(7).randint(1_000_000_000), six times.
        let mut state = State::new(PowerSgdOptions { random_seed: 7, ..Default::default() });
        let numpys = [327741615, 976413892, 128500249, 296233462, 809211459, 980209875];
        assert_eq!([(); 6].map(|()| state.seed()), numpys);
    }
}
