//! codertimo's own normalisation.

use tch::Tensor;
use tch::nn::Path;

/// Added to the standard deviation, where PyTorch's `nn.LayerNorm` adds to the variance.
const EPS: f64 = 1e-6;

/// codertimo's `LayerNorm`: `a_2 * (x - mean) / (std + eps) + b_2`, with the unbiased deviation
/// (divided by n - 1), where `nn.LayerNorm` has the biased one.
#[derive(Debug)]
pub struct LayerNorm {
    a_2: Tensor,
    b_2: Tensor,
}

impl LayerNorm {
    pub fn new(path: &Path<'_>, features: i64) -> Self {
        Self { a_2: path.ones("a_2", &[features]), b_2: path.zeros("b_2", &[features]) }
    }

    /// Normalises the last dimension, which has `features` values.
    pub fn forward(&self, x: &Tensor) -> Tensor {
        let (unbiased, keepdim) = (true, true);
        let mean = x.mean_dim(-1, keepdim, x.kind());
        let std = x.std_dim(-1, unbiased, keepdim);
        &self.a_2 * (x - mean) / (std + EPS) + &self.b_2
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tch::{Device, nn::VarStore};

    #[test]
    fn the_deviation_is_the_unbiased_one() {
        let vs = VarStore::new(Device::Cpu);
        let norm = LayerNorm::new(&vs.root(), 2);
        // The deviation of -1 and 1 is √2 if unbiased, else 1.
        let y = Vec::<f32>::try_from(norm.forward(&Tensor::from_slice(&[-1f32, 1.0]))).unwrap();
        // The eps shifts the last digits.
        assert!((y[1] - 0.5f32.sqrt()).abs() < 1e-6, "{y:?}");
        assert_eq!(y[0], -y[1]);
    }

    #[test]
    fn a_constant_row_becomes_zero() {
        let vs = VarStore::new(Device::Cpu);
        let norm = LayerNorm::new(&vs.root(), 3);
        let y = norm.forward(&Tensor::from_slice(&[5f32, 5.0, 5.0]));
        assert_eq!(Vec::<f32>::try_from(y).unwrap(), [0.0; 3]);
    }
}
