//! Parameter groups equal Python's `param_groups` to the last bit: the weights, the optimizer's
//! state, and the rates and momenta of each group.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use tests::parity::{FILE, expect_equal_tensors};

#[test]
fn weights_states_and_rates_of_groups_equal_python() -> Result<()> {
    let saved = expect_equal_tensors("param_groups", "param_groups", &[FILE])?.tensors;
    let scenarios: BTreeSet<_> = saved.keys().filter_map(|name| name.split('.').next()).collect();
    ensure!(
        scenarios
            == BTreeSet::from(["added", "backbone", "frozen", "no_decay", "one_cycle", "scaled"])
    );

    // What is frozen stays where the same seed has put it in the other runs' models.
    let tokens = |scenario: &str| &saved[&format!("{scenario}.embedding.weight")];
    ensure!(tokens("frozen") == tokens("added"), "a frozen group has moved");
    ensure!(tokens("frozen") != tokens("no_decay"), "no group has moved");
    ensure!(saved["added.backbone.weight"] != saved["frozen.backbone.weight"], "it was not added");
    Ok(())
}
