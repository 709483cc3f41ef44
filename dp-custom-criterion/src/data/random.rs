//! The numbers that Python's `random` draws.

use rand_mt::Mt;

/// `random.Random(key)`: the same key gives the same numbers as in CPython, so that a Python script
/// can mask the same words.
pub struct PythonRandom(Mt);

impl PythonRandom {
    /// The key is an integer of any size, in words of 32 bits, the lowest first.
    pub fn new(key: &[u32]) -> Self {
        // CPython takes as many words as the integer has, and one for 0.
        let words = key.iter().rposition(|&word| word != 0).map_or(1, |last| last + 1);
        Self(Mt::new_with_key(key.iter().copied().chain([0]).take(words)))
    }

    /// `random()`: a number from 0 to below 1, in steps of 2^-53.
    pub fn random(&mut self) -> f64 {
        let [high, low] = [5, 6].map(|rest| u64::from(self.0.next_u32() >> rest));
        (high << 26 | low) as f64 / (1u64 << 53) as f64
    }

    /// `randrange(n)`: an integer from 0 to below `n`, which must not be 0 and fits into 32 bits.
    pub fn randrange(&mut self, n: usize) -> usize {
        let bits = usize::BITS - n.leading_zeros();
        loop {
            // Drawing again keeps all numbers equally likely.
            let drawn = (self.0.next_u32() >> (32 - bits)) as usize;
            if drawn < n {
                return drawn;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `r = random.Random(0)` in CPython 3.11.
    #[test]
    fn key_0_draws_pythons_numbers() {
        let mut random = PythonRandom::new(&[0]);
        let numbers = [random.random(), random.random(), random.random()];
        assert_eq!(numbers, [0.8444218515250481, 0.7579544029403025, 0.420571580830845]);
        assert_eq!([0; 8].map(|_| random.randrange(10)), [4, 8, 7, 6, 4, 7, 5, 9]);
    }
}
