//! The activation between the two layers of a feed-forward network.

use tch::Tensor;

/// codertimo's `GELU`. He writes the approximation out, and so does this: `gelu("tanh")` is one
/// operation, which rounds differently and keeps less in memory for the backward pass.
pub fn gelu(x: &Tensor) -> Tensor {
    let scale = (2.0 / std::f64::consts::PI).sqrt();
    let inner: Tensor = x + 0.044715 * x.pow_tensor_scalar(3);
    0.5 * x * (1.0 + (scale * inner).tanh())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tch::{Device, Kind};

    #[test]
    fn it_is_pytorchs_but_for_rounding() {
        let x = Tensor::linspace(-4, 4, 101, (Kind::Float, Device::Cpu));
        // A few roundings of an f32 below 4.
        assert!(gelu(&x).allclose(&x.gelu("tanh"), 1e-6, 1e-6, false));
    }
}
