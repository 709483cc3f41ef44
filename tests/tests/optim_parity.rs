//! Adam equals Python's to the last bit: the weights, its state, and the initial weights.

use anyhow::{Result, ensure};
use tests::programs::example;
use tests::{Job, python, safetensors};

/// Takes ten steps with these keyword arguments in Rust and in Python, and compares the results.
fn expect_parity(arguments: &str) -> Result<()> {
    let job = Job::new()?;
    job.run(example("adam", [arguments, "rust.safetensors"])?)?.expect_success()?;
    job.run(python("adam", [arguments, "python.safetensors"])?)?.expect_success()?;
    let rust = safetensors::read(&job.directory().join("rust.safetensors"))?;
    let python = safetensors::read(&job.directory().join("python.safetensors"))?;

    let names = [&rust, &python].map(|file| file.keys().cloned().collect::<Vec<_>>());
    ensure!(names[0] == names[1], "{:?} against {:?}", names[0], names[1]);
    // Three parameters, and for each of them three tensors of Adam's state.
    ensure!(names[0].len() == 12, "saved were {:?}", names[0]);
    for (name, tensor) in &rust {
        ensure!(tensor == &python[name], "{name} differs with {arguments}");
    }
    Ok(())
}

#[test]
fn adam_with_pytorchs_defaults_equals_python() -> Result<()> {
    expect_parity("{}")
}

#[test]
fn adam_with_weight_decay_equals_python() -> Result<()> {
    expect_parity(r#"{"lr": 0.01, "weight_decay": 0.1}"#)
}

#[test]
fn adam_with_decoupled_weight_decay_equals_python() -> Result<()> {
    expect_parity(r#"{"lr": 0.01, "weight_decay": 0.1, "decoupled_weight_decay": true}"#)
}

#[test]
fn adam_with_other_betas_and_another_eps_equals_python() -> Result<()> {
    expect_parity(r#"{"lr": 0.1, "betas": [0.3, 0.9], "eps": 0.001}"#)
}
