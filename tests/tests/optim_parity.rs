//! Every optimizer equals Python's to the last bit, with each of its options, with parameter groups
//! and with clipped gradients: the weights, the state, and the initial weights.

use crate::prelude::*;

struct Optimizer(&'static str);

impl Optimizer {
    /// A case for each of these options and each of the problems to try them on.
    fn with(self, options: &[(&[&str], Value)]) -> Vec<Value> {
        let on_problems = |(problems, options): &(&[&str], Value)| {
            let case = |problem: &&str| json!({ "optimizer": self.0, "options": options, "problem": problem });
            problems.iter().map(case).collect::<Vec<_>>()
        };
        options.iter().flat_map(on_problems).collect()
    }
}

const DENSE: &[&str] = &["float", "double", "bfloat16", "complex"];
const ALL: &[&str] = &["float", "double", "bfloat16", "complex", "sparse"];
const SPARSE: &[&str] = &["sparse"];

fn all_cases() -> Vec<Value> {
    let sgd = Optimizer("SGD").with(&[
        (ALL, json!({ "lr": 0.1 })),
        (ALL, json!({ "lr": 0.1, "momentum": 0.9, "dampening": 0.3 })),
        (ALL, json!({ "lr": 0.1, "momentum": 0.9, "nesterov": true, "maximize": true })),
        (DENSE, json!({ "lr": 0.1, "momentum": 0.9, "nesterov": true, "weight_decay": 0.01 })),
        (DENSE, json!({ "momentum": 0.5, "weight_decay": 0.1, "maximize": true })),
    ]);
    let adam = Optimizer("Adam").with(&[
        (DENSE, json!({})),
        (DENSE, json!({ "lr": 0.01, "weight_decay": 0.1 })),
        (DENSE, json!({ "lr": 0.01, "weight_decay": 0.1, "decoupled_weight_decay": true })),
        (DENSE, json!({ "lr": 0.1, "betas": [0.3, 0.9], "eps": 0.001 })),
        (DENSE, json!({ "lr": 0.1, "betas": [0.5, 0.6], "amsgrad": true })),
        (DENSE, json!({ "lr": 0.1, "amsgrad": true, "maximize": true, "weight_decay": 0.1 })),
    ]);
    let adamw = Optimizer("AdamW").with(&[
        (DENSE, json!({})),
        (DENSE, json!({ "lr": 0.1, "betas": [0.5, 0.6], "amsgrad": true, "maximize": true })),
    ]);
    let rmsprop = Optimizer("RMSprop").with(&[
        (DENSE, json!({})),
        (DENSE, json!({ "lr": 0.1, "alpha": 0.7, "eps": 0.001 })),
        (DENSE, json!({ "momentum": 0.9, "weight_decay": 0.1 })),
        (DENSE, json!({ "centered": true, "maximize": true })),
        (DENSE, json!({ "centered": true, "momentum": 0.5, "weight_decay": 0.1, "eps": 0.001 })),
    ]);
    let adagrad = Optimizer("Adagrad").with(&[
        (ALL, json!({})),
        (ALL, json!({ "lr": 0.1, "lr_decay": 0.1, "initial_accumulator_value": 0.3 })),
        (ALL, json!({ "lr": 0.1, "eps": 0.01, "maximize": true })),
        (DENSE, json!({ "weight_decay": 0.1, "maximize": true })),
    ]);
    let adadelta = Optimizer("Adadelta").with(&[
        (DENSE, json!({})),
        (DENSE, json!({ "lr": 0.3, "rho": 0.7, "eps": 0.001 })),
        (DENSE, json!({ "weight_decay": 0.1, "maximize": true })),
    ]);
    // With the defaults, the sixth step is the first to be rectified.
    let radam = Optimizer("RAdam").with(&[
        (DENSE, json!({})),
        (DENSE, json!({ "lr": 0.1, "betas": [0.3, 0.9], "eps": 0.001 })),
        (DENSE, json!({ "lr": 0.1, "weight_decay": 0.1, "maximize": true })),
        (DENSE, json!({ "lr": 0.1, "weight_decay": 0.1, "decoupled_weight_decay": true })),
    ]);
    let nadam = Optimizer("NAdam").with(&[
        (DENSE, json!({})),
        (DENSE, json!({ "betas": [0.3, 0.9], "eps": 0.001, "momentum_decay": 0.1 })),
        (DENSE, json!({ "lr": 0.1, "weight_decay": 0.1, "maximize": true })),
        (DENSE, json!({ "lr": 0.1, "weight_decay": 0.1, "decoupled_weight_decay": true })),
    ]);
    let sparse_adam = Optimizer("SparseAdam").with(&[
        (SPARSE, json!({})),
        (SPARSE, json!({ "lr": 0.1, "betas": [0.3, 0.9], "eps": 0.001 })),
        (SPARSE, json!({ "lr": 0.1, "maximize": true })),
    ]);
    let cases = [sgd, adam, adamw, rmsprop, adagrad, adadelta, radam, nadam, sparse_adam].concat();
    // The same with `_foreach_*` operations, which are the default on GPUs.
    let mut with_foreach = cases.clone();
    with_foreach.retain(|case| case["optimizer"] != "SparseAdam");
    with_foreach.iter_mut().for_each(|case| case["options"]["foreach"] = true.into());
    [with_foreach, cases].concat()
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
    let problem: &[&str] = &["matrices"];
    expect_parity("muon", &Optimizer("Muon").with(&options.map(|options| (problem, options))))
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
fn clip_grad_norm_equals_python_whether_some_gradients_are_too_long_or_all() -> Result<()> {
    let norms = norms_as_in_python("clip_grad_norm_", "1.0", "2")?;
    ensure!(norms.iter().any(|&norm| norm < 1.0), "all were clipped: {norms:?}");
    ensure!(norms.iter().any(|&norm| norm > 1.0), "none was clipped: {norms:?}");
    let norms = norms_as_in_python("clip_grad_norm_", "0.37", "2")?;
    ensure!(norms.iter().all(|&norm| norm > 0.37), "some were not clipped: {norms:?}");
    Ok(())
}

#[test]
fn clip_grad_norm_equals_python_with_other_norms() -> Result<()> {
    let limits = [("0", 2.0), ("0.5", 9.0), ("1", 1.0), ("1.5", 0.5), ("3", 0.1), ("inf", 0.05)];
    for (p, limit) in limits {
        let norms = norms_as_in_python("clip_grad_norm_", &limit.to_string(), p)?;
        ensure!(norms.iter().any(|&norm| norm > limit), "{p}: none was clipped, {norms:?}");
    }
    Ok(())
}

cases! {
    fn clip_grad_value_equals_python() = norms_as_in_python("clip_grad_value_", "0.05", "2").map(drop);
    /// The Rust program makes its steps twice, once with an interruption, and fails if that changes a bit.
    fn every_optimizer_with_every_option_equals_python_even_if_it_is_interrupted() =
        expect_parity("optimizers", &all_cases());
}
