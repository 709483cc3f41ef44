//! Parameter groups equal Python's `param_groups` to the last bit: the weights, the optimizer's
//! state, and the rates and momenta of each group.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use tests::programs::example;
use tests::{Job, python, safetensors};

#[test]
fn weights_states_and_rates_of_groups_equal_python() -> Result<()> {
    let job = Job::new()?;
    job.run(example("param_groups", ["rust.safetensors"])?)?.expect_success()?;
    job.run(python("param_groups", ["python.safetensors"])?)?.expect_success()?;
    let rust = safetensors::read(&job.directory().join("rust.safetensors"))?;
    let python = safetensors::read(&job.directory().join("python.safetensors"))?;

    let names = [&rust, &python].map(|file| file.keys().cloned().collect::<Vec<_>>());
    ensure!(names[0] == names[1], "{:?} against {:?}", names[0], names[1]);
    let scenarios: BTreeSet<_> = rust.keys().filter_map(|name| name.split('.').next()).collect();
    ensure!(
        scenarios
            == BTreeSet::from(["added", "backbone", "frozen", "no_decay", "one_cycle", "scaled"])
    );
    for (name, tensor) in &rust {
        ensure!(tensor == &python[name], "{name} differs");
    }

    // What is frozen stays where the same seed has put it in the other runs' models.
    let tokens = |scenario: &str| &rust[&format!("{scenario}.embedding.weight")];
    ensure!(tokens("frozen") == tokens("added"), "a frozen group has moved");
    ensure!(tokens("frozen") != tokens("no_decay"), "no group has moved");
    ensure!(rust["added.backbone.weight"] != rust["frozen.backbone.weight"], "it was not added");
    Ok(())
}
