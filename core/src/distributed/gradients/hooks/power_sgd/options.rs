//! PowerSGD's options.

use crate::{Result, check};
use tch_parallel_base::options;

options! {
    /// PyTorch's keyword arguments of `PowerSGDState`, with its defaults.
    #[derive(Debug, Clone, Copy, PartialEq)]
    pub struct PowerSgdOptions {
        /// The number of columns of P and Q: more are closer to the gradient and save less. Usually
        /// 1 to 4; double it until the accuracy is sufficient.
        pub matrix_approximation_rank: usize = 1,
        /// The number of initial steps that exchange whole gradients. Training is most sensitive to
        /// approximation at the start; a tenth of all steps is a good value.
        pub start_power_sgd_iter: u64 = 1000,
        /// Compress a gradient only if that reduces its size by this factor.
        pub min_compression_rate: f64 = 2.0,
        /// Whether the error of a step is added to the next gradient. Costs twice the memory of the
        /// gradients, and is what makes PowerSGD converge.
        pub use_error_feedback: bool = true,
        /// Whether a step starts from the previous Q, which is more accurate than random numbers.
        pub warm_start: bool = true,
        /// Added to a column's length before dividing by it. Set it to, say, 1e-8 if columns can be all zero.
        pub orthogonalization_epsilon: f64 = 0.0,
        /// Seeds the first Q, which must be the same on every rank.
        pub random_seed: u32 = 0,
        /// Whether gradients of the same shape in a bucket are processed as one batch. The result
        /// is the same; faster for large buckets on a GPU.
        pub batch_tensors_with_same_shape: bool = false,
    }
}

impl PowerSgdOptions {
    pub(super) fn check(&self) -> Result<()> {
        check(self.matrix_approximation_rank > 0, "matrix_approximation_rank", "0", "at least 1")?;
        let remembers = self.use_error_feedback || self.warm_start;
        let start = self.start_power_sgd_iter;
        let expected = "at least 2 with use_error_feedback or warm_start: both remember buckets, which the second \
                        step orders anew";
        check(start >= 2 || !remembers, "start_power_sgd_iter", start, expected)
    }

    /// Whether a matrix is worth compressing, and to how many numbers. `_should_compress`
    pub(super) fn compressed_size(&self, rows: i64, columns: i64) -> Option<u64> {
        let size = (rows + columns) * self.rank_of(rows, columns);
        (size as f64 * self.min_compression_rate < (rows * columns) as f64).then_some(size as u64)
    }

    /// A matrix's rank is at most its number of rows or columns.
    pub(super) fn rank_of(&self, rows: i64, columns: i64) -> i64 {
        let rank = i64::try_from(self.matrix_approximation_rank).unwrap_or(i64::MAX);
        rows.min(columns).min(rank)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_not_get_smaller_is_not_compressed() {
        let options = PowerSgdOptions::default();
        assert_eq!(options.compressed_size(128, 784), Some(912));
        assert_eq!(options.compressed_size(128, 1), None, "a bias");
        // 8 numbers instead of 16 are not less than half.
        assert_eq!(options.compressed_size(4, 4), None);
        assert_eq!(options.compressed_size(5, 5), Some(10));
        let rank = PowerSgdOptions { matrix_approximation_rank: 100, ..options };
        assert_eq!(rank.compressed_size(5, 5), None);
    }
}
