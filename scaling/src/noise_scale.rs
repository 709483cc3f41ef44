//! The gradient noise scale: the batch whose gradient has as much noise as signal.

/// Moving averages of signal and noise, estimated from the ranks' gradients (McCandlish and others, "An Empirical Model of
/// Large-Batch Training", 2018, appendix A.1).
#[derive(Debug, Default)]
pub struct NoiseScale {
    /// The squared norm of the gradient of all samples.
    signal: f64,
    /// The variance of a sample's gradient, summed over its elements.
    noise: f64,
}

/// The weight of a new step in the moving averages.
const NEW: f64 = 0.05;

impl NoiseScale {
    // ANCHOR: add
    /// Adds a step: the mean squared norm of the ranks' gradients, the squared norm of their mean,
    /// and the number of samples behind a gradient of each kind.
    pub fn add(&mut self, [of_ranks, of_mean]: [f64; 2], samples: [usize; 2]) {
        let [few, many] = samples.map(|samples| samples as f64);
        let signal = (many * of_mean - few * of_ranks) / (many - few);
        let noise = (of_ranks - of_mean) / (1.0 / few - 1.0 / many);
        self.signal += NEW * (signal - self.signal);
        self.noise += NEW * (noise - self.noise);
    }

    pub fn samples(&self) -> f64 {
        self.noise / self.signal
    }
    // ANCHOR_END: add
}

#[cfg(test)]
mod tests {
    use super::*;
    use tch::{Device, Kind, Tensor};

    #[test]
    fn it_is_the_variance_of_a_sample_over_the_square_of_the_mean() {
        tch::manual_seed(0);
        let mut scale = NoiseScale::default();
        let squared = |tensor: &Tensor| tensor.square().sum(Kind::Double).double_value(&[]);
        for _ in 0..100 {
            // 8 ranks of 4 samples, each with a gradient of 1000 elements of mean 1 and deviation 3.
            let samples = Tensor::randn([8, 4, 1000], (Kind::Float, Device::Cpu)) * 3.0 + 1.0;
            let of_ranks = samples.mean_dim(1, false, Kind::Float);
            let of_mean = of_ranks.mean_dim(0, false, Kind::Float);
            scale.add([squared(&of_ranks) / 8.0, squared(&of_mean)], [4, 32]);
        }
        assert!((scale.samples() - 9.0).abs() < 0.5, "{}", scale.samples());
    }
}
