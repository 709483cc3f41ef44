//! Layers equal Python's to the last bit: names and order of the parameters, initial weights, outputs
//! in training, with dropout, and in evaluation, and gradients. So do the functions of `nn.init`.

use anyhow::{Result, ensure};
use tests::programs::example;
use tests::{Job, python, safetensors};

#[test]
fn every_layer_and_every_function_of_init_equals_python() -> Result<()> {
    let job = Job::new()?;
    let [rust, python] = [
        job.run(example("layers", ["rust.safetensors"])?)?.expect_success()?,
        job.run(python("layers", ["python.safetensors"])?)?.expect_success()?,
    ];
    assert_eq!(rust.stdout, python.stdout, "the order of the parameters");

    let rust = safetensors::read(&job.directory().join("rust.safetensors"))?;
    let python = safetensors::read(&job.directory().join("python.safetensors"))?;
    let names = [&rust, &python].map(|file| file.keys().cloned().collect::<Vec<_>>());
    assert_eq!(names[0], names[1]);
    let differ: Vec<_> = rust
        .iter()
        .filter(|(name, tensor)| *tensor != &python[*name])
        .map(|(name, _)| name)
        .collect();
    ensure!(differ.is_empty(), "these differ: {differ:#?}");
    // Rules out dropout that does nothing, on both sides.
    for layer in ["lstm", "gru", "attention", "encoder_layer"] {
        ensure!(rust[&format!("{layer}.train.0")] != rust[&format!("{layer}.eval.0")], "{layer}");
    }
    Ok(())
}
