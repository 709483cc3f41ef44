//! The networks equal their Python originals to the last bit: the initial weights for a seed, the
//! names and the order of the parameters, and outputs, gradients and running statistics in training
//! and in evaluation.

use anyhow::{Result, ensure};
use tests::programs::example;
use tests::{Job, python, safetensors};

/// Trains and evaluates one batch in Rust and in Python, and compares the results.
fn expect_parity(arch: &str) -> Result<()> {
    let job = Job::new()?;
    let [rust, python] = [
        job.run(example("models", [arch, "rust.safetensors"])?)?.expect_success()?,
        job.run(python("models", [arch, "python.safetensors"])?)?.expect_success()?,
    ];
    assert_eq!(rust.stdout, python.stdout, "the order of {arch}'s parameters");

    let rust = safetensors::read(&job.directory().join("rust.safetensors"))?;
    let python = safetensors::read(&job.directory().join("python.safetensors"))?;
    let names = [&rust, &python].map(|file| file.keys().cloned().collect::<Vec<_>>());
    ensure!(names[0] == names[1], "{:?} against {:?}", names[0], names[1]);
    for (name, tensor) in &rust {
        ensure!(tensor == &python[name], "{name} of {arch} differs");
    }
    // Rules out a batch norm that does nothing, on both sides.
    ensure!(rust["initial.bn1.running_mean"] != rust["train.bn1.running_mean"]);
    ensure!(rust["train.logits"] != rust["eval.logits"]);
    Ok(())
}

#[test]
fn resnet18_equals_torchvisions() -> Result<()> {
    expect_parity("resnet18")
}

#[test]
fn resnet50_equals_torchvisions() -> Result<()> {
    expect_parity("resnet50")
}

#[test]
fn a_pyramidnet_equals_python() -> Result<()> {
    expect_parity("pyramidnet14_a10")
}

#[test]
fn a_pyramidnet_of_bottlenecks_equals_python() -> Result<()> {
    expect_parity("pyramidnet20_a9_bn")
}

#[test]
fn the_tutorials_pyramidnet_equals_python() -> Result<()> {
    expect_parity("pyramidnet")
}
