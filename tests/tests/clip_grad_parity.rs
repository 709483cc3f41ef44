//! Clipped gradients equal Python's to the last bit: their norms, and the weights after ten steps.

use anyhow::{Result, ensure};
use tests::parity::{FILE, expect_equal_tensors};
use tests::safetensors::Tensor;

/// Takes ten steps in Rust and in Python, compares them, and returns the norms of the gradients.
fn expect_parity(function: &str, limit: &str) -> Result<Vec<f32>> {
    let both = expect_equal_tensors("clip_grad", "clip_grad", &[function, limit, FILE])?;
    both.tensors.get("norms").map_or(Ok(Vec::new()), Tensor::floats)
}

#[test]
fn clip_grad_norm_equals_python_whether_gradients_are_too_long_or_not() -> Result<()> {
    let norms = expect_parity("clip_grad_norm_", "1.0")?;
    ensure!(norms.iter().any(|&norm| norm < 1.0), "all were clipped: {norms:?}");
    ensure!(norms.iter().any(|&norm| norm > 1.0), "none was clipped: {norms:?}");
    Ok(())
}

#[test]
fn clip_grad_norm_equals_python_where_every_step_is_clipped() -> Result<()> {
    let norms = expect_parity("clip_grad_norm_", "0.37")?;
    ensure!(norms.iter().all(|&norm| norm > 0.37), "some were not clipped: {norms:?}");
    Ok(())
}

#[test]
fn clip_grad_value_equals_python() -> Result<()> {
    expect_parity("clip_grad_value_", "0.05").map(drop)
}
