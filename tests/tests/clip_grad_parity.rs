//! Clipped gradients equal Python's to the last bit: their norms, and the weights after ten steps.

use anyhow::{Result, ensure};
use tests::programs::example;
use tests::{Job, python, safetensors};

/// Takes ten steps in Rust and in Python, compares them, and returns the norms of the gradients.
fn expect_parity(function: &str, limit: &str) -> Result<Vec<f32>> {
    let job = Job::new()?;
    job.run(example("clip_grad", [function, limit, "rust.safetensors"])?)?.expect_success()?;
    job.run(python("clip_grad", [function, limit, "python.safetensors"])?)?.expect_success()?;
    let rust = safetensors::read(&job.directory().join("rust.safetensors"))?;
    let python = safetensors::read(&job.directory().join("python.safetensors"))?;

    let names = [&rust, &python].map(|file| file.keys().cloned().collect::<Vec<_>>());
    ensure!(names[0] == names[1], "{:?} against {:?}", names[0], names[1]);
    for (name, tensor) in &rust {
        ensure!(tensor == &python[name], "{name} differs with {function} and {limit}");
    }
    let Some(norms) = rust.get("norms") else { return Ok(Vec::new()) };
    let (norms, []) = norms.bytes.as_chunks() else { unreachable!("f32 has 4 bytes") };
    Ok(norms.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect())
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
    expect_parity("clip_grad_value_", "0.05")?;
    Ok(())
}
