//! Every optimizer equals Python's to the last bit, with each of its options, with parameter groups
//! and with clipped gradients: the weights, the state, and the initial weights.

use crate::prelude::*;
use tests::parity::{FILE, expect_equal_tensors};

fn case(optimizer: &str, problem: &str, options: &Value) -> Value {
    json!({ "optimizer": optimizer, "options": options, "problem": problem })
}

/// Each line of the file names an optimizer, its problems, and the options to try. With the defaults, RAdam's sixth step
/// is the first to be rectified.
fn all_cases() -> Result<Vec<Value>> {
    let mut cases = Vec::new();
    for line in source("tests/data/optimizers.txt")?.lines() {
        let (optimizer, rest) = line.split_once(' ').context("an optimizer")?;
        let (problems, options) = rest.split_once(' ').context("its problems")?;
        let problems: &[&str] = match problems {
            "all" => &["float", "double", "bfloat16", "complex", "sparse"],
            "dense" => &["float", "double", "bfloat16", "complex"],
            "sparse" => &["sparse"],
            other => bail!("there are no problems {other}"),
        };
        let options: Value = serde_json::from_str(options)?;
        cases.extend(problems.iter().map(|problem| case(optimizer, problem, &options)));
    }
    // The same with `_foreach_*` operations, which are the default on GPUs.
    let mut with_foreach = cases.clone();
    with_foreach.retain(|case| case["optimizer"] != "SparseAdam");
    with_foreach.iter_mut().for_each(|case| case["options"]["foreach"] = true.into());
    Ok([with_foreach, cases].concat())
}

cases! {
    /// The Rust program makes its steps twice, once with an interruption, and fails if that changes a bit.
    fn every_optimizer_with_every_option_equals_python_even_if_it_is_interrupted() =
        expect_parity("optimizers", &all_cases()?);
    fn clip_grad_value_equals_python() =
        norms_as_in_python("clip_grad_value_", "0.05", "2").map(drop);
}

fn expect_parity(example: &str, cases: &[Value]) -> Result<()> {
    let texts: Vec<_> = cases.iter().map(Value::to_string).collect();
    let arguments: Vec<_> = [FILE].into_iter().chain(texts.iter().map(String::as_str)).collect();
    let saved = expect_equal_tensors(example, "optimizers", &arguments)?.tensors;
    for (number, case) in cases.iter().enumerate() {
        let is_of_case = |name: &String| name.starts_with(&format!("{number}."));
        ensure!(saved.keys().any(is_of_case), "nothing was saved of {case}");
    }
    Ok(())
}

#[test]
fn muon_as_an_optimizer_of_ones_own_equals_pythons() -> Result<()> {
    let options = [
        json!({}),
        json!({ "lr": 0.02, "nesterov": false, "weight_decay": 0.0 }),
        json!({ "lr": 0.02, "momentum": 0.8, "adjust_lr_fn": "match_rms_adamw" }),
        json!({ "lr": 0.1, "ns_steps": 2, "ns_coefficients": [2.0, -1.5, 0.5], "eps": 1.0 }),
    ];
    expect_parity("muon", &options.map(|options| case("Muon", "matrices", &options)))
}

/// With the rates and momenta of each group.
#[test]
fn weights_states_and_rates_of_groups_equal_python() -> Result<()> {
    let saved = expect_equal_tensors("param_groups", "param_groups", &[FILE])?.tensors;
    let scenarios: BTreeSet<_> = saved.keys().filter_map(|name| name.split('.').next()).collect();
    let expected = "added backbone frozen hooked no_decay one_cycle scaled";
    ensure!(scenarios == expected.split(' ').collect(), "{scenarios:?}");

    // What is frozen stays where the same seed has put it in the other runs' models.
    let tokens = |scenario: &str| &saved[&format!("{scenario}.embedding.weight")];
    ensure!(tokens("frozen") == tokens("added"), "a frozen group has moved");
    ensure!(tokens("frozen") != tokens("no_decay"), "no group has moved");
    ensure!(saved["added.backbone.weight"] != saved["frozen.backbone.weight"], "it was not added");
    Ok(())
}

/// Takes ten steps in Rust and in Python, compares them, and returns the norms of the gradients.
fn norms_as_in_python(function: &str, limit: &str, norm_type: &str) -> Result<Vec<f32>> {
    let both = expect_equal_tensors("clip_grad", "clip_grad", &[function, limit, norm_type, FILE])?;
    let mut norms = both.tensors.get("norms").map_or(Ok(Vec::new()), Tensor::floats)?;
    // The last one is that of the weights.
    norms.pop();
    Ok(norms)
}

#[test]
fn clip_grad_norm_equals_python_whether_gradients_are_too_long_or_not() -> Result<()> {
    let norms = norms_as_in_python("clip_grad_norm_", "1.0", "2")?;
    ensure!(norms.iter().any(|&norm| norm < 1.0), "all were clipped: {norms:?}");
    ensure!(norms.iter().any(|&norm| norm > 1.0), "none was clipped: {norms:?}");
    Ok(())
}

#[test]
fn clip_grad_norm_equals_python_where_every_step_is_clipped() -> Result<()> {
    let norms = norms_as_in_python("clip_grad_norm_", "0.37", "2")?;
    ensure!(norms.iter().all(|&norm| norm > 0.37), "some were not clipped: {norms:?}");
    Ok(())
}

#[test]
fn clip_grad_norm_equals_python_with_other_norms() -> Result<()> {
    for (norm_type, limit) in
        [("0", "2"), ("0.5", "9"), ("1", "1"), ("1.5", "0.5"), ("3", "0.1"), ("inf", "0.05")]
    {
        let norms = norms_as_in_python("clip_grad_norm_", limit, norm_type)?;
        let limit: f32 = limit.parse()?;
        ensure!(norms.iter().any(|&norm| norm > limit), "{norm_type}: none was clipped, {norms:?}");
    }
    Ok(())
}
