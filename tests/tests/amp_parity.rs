//! Mixed precision equals Python's to the last bit: losses, the scale after each step, weights.

use crate::prelude::*;

/// Takes twelve steps in Rust and in Python, compares them, and returns the scale after each step.
fn expect_parity(kind: &str) -> Result<Vec<f32>> {
    let tensors = expect_equal_tensors("amp", "amp", &[kind, FILE])?.tensors;
    let names: Vec<_> = tensors.keys().collect();
    ensure!(names == ["fc1.bias", "fc1.weight", "fc2.bias", "fc2.weight", "losses", "scales"]);
    tensors["scales"].floats()
}

#[test]
fn autocast_to_bfloat16_equals_python() -> Result<()> {
    let scales = expect_parity("bfloat16")?;
    ensure!(scales.is_sorted(), "nothing overflows in 32 bits' range: {scales:?}");
    Ok(())
}

#[test]
fn autocast_to_float16_with_steps_left_out_equals_python() -> Result<()> {
    let scales = expect_parity("float16")?;
    let steps = || scales.windows(2);
    ensure!(steps().any(|pair| pair[1] < pair[0]), "no step was left out: {scales:?}");
    ensure!(steps().any(|pair| pair[1] > pair[0]), "the scale has never grown: {scales:?}");
    Ok(())
}
