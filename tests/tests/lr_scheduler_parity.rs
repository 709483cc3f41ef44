//! Learning rates and momenta equal Python's to the last bit, in every epoch and parameter group.

use crate::prelude::*;
use serde_json::from_str;

/// More epochs than any cosine below takes to fall, rise and fall again.
const EPOCHS: usize = 250;

/// By epoch and parameter group: the rate, and the momentum or the first beta.
type Rates = Vec<Vec<[f64; 2]>>;

fn expect_parity(optimizer: &str, lrs: &[f64], schedules: &[Value]) -> Result<()> {
    let job = Job::new()?;
    let mut arguments = vec![EPOCHS.to_string(), optimizer.to_owned(), json!(lrs).to_string()];
    arguments.extend(schedules.iter().map(Value::to_string));
    let arguments = || arguments.iter().map(String::as_str);
    let rust = job.run(example("lr_schedules", arguments())?)?.expect_success()?;
    let python = job.run(python("lr_schedulers", arguments())?)?.expect_success()?;
    let lines = [rust.stdout.lines().count(), python.stdout.lines().count()];
    ensure!(lines == [schedules.len(); 2], "{lines:?} courses of {}", schedules.len());

    let courses = rust.stdout.lines().zip(python.stdout.lines());
    for (schedule, (rust, python)) in schedules.iter().zip(courses) {
        let (rust, python): (Rates, Rates) = (from_str(rust)?, from_str(python)?);
        ensure!(rust.len() == EPOCHS && python.len() == EPOCHS, "epochs are missing");
        ensure!(rust.iter().any(|rates| *rates != rust[0]), "{schedule} changes nothing");
        for (epoch, (ours, theirs)) in rust.iter().zip(&python).enumerate() {
            ensure!(ours.len() == lrs.len(), "groups are missing");
            let bits = |rates: &[[f64; 2]]| rates.concat().into_iter().map(f64::to_bits);
            let place = format!("epoch {epoch} of {schedule} from {lrs:?}");
            ensure!(bits(ours).eq(bits(theirs)), "{ours:?} against {theirs:?} in {place}");
        }
    }
    Ok(())
}

/// `{NAME: ARGUMENTS}` with more arguments, or with others in place of some.
fn with(name: &str, arguments: &Value, more: &Value) -> Value {
    let mut arguments = arguments.clone();
    for (name, value) in more.as_object().into_iter().flatten() {
        arguments[name] = value.clone();
    }
    json!({ name: arguments })
}

cases! {
    fn step_lr_equals_python() = expect_parity("SGD", &[0.1, 0.037], &[
        json!({ "StepLR": { "step_size": 30 } }),
        json!({ "StepLR": { "step_size": 7, "gamma": 0.97 } }),
    ]);
    fn multi_step_lr_equals_python() = expect_parity("SGD", &[0.3, 0.07], &[
        json!({ "MultiStepLR": { "milestones": [150, 225] } }),
        json!({ "MultiStepLR": { "milestones": [90, 3, 3, 60, 3], "gamma": 0.7 } }),
        json!({ "MultiStepLR": { "milestones": [0, 5], "gamma": 0.2 } }),
    ]);
    fn simple_schedules_equal_python_and_a_cosine_even_when_it_rises_again() = expect_parity("SGD", &[0.1, 0.0123], &[
        json!({ "ExponentialLR": { "gamma": 0.95 } }),
        json!({ "ExponentialLR": { "gamma": 1.003 } }),
        json!({ "LambdaLR": { "lr_lambda": [0.3, 1.0, 0.7, 1.1, 0.0] } }),
        json!({ "LambdaLR": { "lr_lambda": [[0.3, 1.0, 0.7], [1.1, 0.9]] } }),
        json!({ "MultiplicativeLR": { "lr_lambda": [0.3, 1.01, 0.97, 1.03] } }),
        json!({ "MultiplicativeLR": { "lr_lambda": [[0.95, 1.0, 1.04], [1.1, 0.9]] } }),
        json!({ "SWALR": { "swa_lr": 0.05 } }),
        json!({ "SWALR": { "swa_lr": [0.03, 0.07], "anneal_epochs": 37 } }),
        json!({ "SWALR": { "swa_lr": 0.05, "anneal_epochs": 23, "anneal_strategy": "linear" } }),
        json!({ "SWALR": { "swa_lr": 0.05, "anneal_epochs": 300 } }),
        json!({ "PolynomialLR": {} }),
        json!({ "PolynomialLR": { "total_iters": 201, "power": 0.9 } }),
        json!({ "PolynomialLR": { "total_iters": 300, "power": 2.3 } }),
        json!({ "CosineAnnealingLR": { "T_max": 100 } }),
        json!({ "CosineAnnealingLR": { "T_max": 37, "eta_min": 0.0007 } }),
        json!({ "CosineAnnealingLR": { "T_max": 1 } }),
    ]);
    fn linear_and_constant_lr_equal_python() = expect_parity("SGD", &[0.1, 0.0123, 0.7], &[
        json!({ "LinearLR": {} }),
        json!({ "LinearLR": { "start_factor": 0.9, "end_factor": 0.07, "total_iters": 211 } }),
        json!({ "ConstantLR": {} }),
        json!({ "ConstantLR": { "factor": 0.37, "total_iters": 101 } }),
    ]);
}

#[test]
fn warm_restarts_equal_python_even_in_the_middle_of_an_epoch() -> Result<()> {
    // Each batch sets its epoch, then some go on from there, and the schedule is set back.
    let batches: Vec<_> = (0..90).map(|batch| Some(f64::from(batch) / 7.0)).collect();
    let mut jumps = vec![None; 30];
    for (at, epoch) in [(0, 3.3), (5, 26.0), (6, 121.0), (9, 40.7), (20, 0.1), (22, 4.0)] {
        jumps[at] = Some(epoch);
    }
    let schedules = [
        json!({ "CosineAnnealingWarmRestarts": { "T_0": 10 } }),
        json!({ "CosineAnnealingWarmRestarts": { "T_0": 7, "T_mult": 2, "eta_min": 0.0007 } }),
        json!({ "CosineAnnealingWarmRestarts": { "T_0": 1, "T_mult": 3 } }),
        json!({ "CosineAnnealingWarmRestarts": { "T_0": 3, "epochs": batches } }),
        json!({ "CosineAnnealingWarmRestarts": { "T_0": 2, "T_mult": 2, "epochs": batches } }),
        json!({ "CosineAnnealingWarmRestarts": { "T_0": 1, "T_mult": 3, "epochs": jumps } }),
        json!({ "CosineAnnealingWarmRestarts": { "T_0": 4, "epochs": jumps } }),
    ];
    expect_parity("SGD", &[0.1, 0.0123], &schedules)
}

#[test]
fn one_cycle_lr_equals_python_in_momenta_and_betas_too() -> Result<()> {
    let arguments = json!({
        "max_lr": [0.3, 0.011],
        "total_steps": 267,
        "pct_start": 0.37,
        "base_momentum": [0.7, 0.81],
        "max_momentum": [0.9, 0.99],
        "div_factor": 7.0,
        "final_div_factor": 31.0,
    });
    let odd = |more| with("OneCycleLR", &arguments, &more);
    let schedules = [
        json!({ "OneCycleLR": { "max_lr": 0.1, "total_steps": EPOCHS } }),
        odd(json!({})),
        odd(json!({ "anneal_strategy": "linear" })),
        odd(json!({ "three_phase": true })),
        odd(json!({ "three_phase": true, "anneal_strategy": "linear" })),
        json!({ "OneCycleLR": { "max_lr": 0.1, "total_steps": EPOCHS, "pct_start": 0.0 } }),
        json!({ "OneCycleLR": { "max_lr": 0.1, "total_steps": 300, "cycle_momentum": false } }),
    ];
    expect_parity("SGD", &[0.1, 0.037], &schedules)?;
    expect_parity("Adam", &[0.1, 0.037], &schedules)
}

#[test]
fn cyclic_lr_equals_python_in_every_mode() -> Result<()> {
    let arguments = json!({
        "base_lr": [0.01, 0.003],
        "max_lr": [0.1, 0.07],
        "step_size_up": 17,
        "step_size_down": 23,
        "base_momentum": [0.7, 0.81],
        "max_momentum": [0.9, 0.99],
    });
    let odd = |more| with("CyclicLR", &arguments, &more);
    let schedules = [
        json!({ "CyclicLR": { "base_lr": 0.001, "max_lr": 0.1 } }),
        odd(json!({})),
        odd(json!({ "mode": "triangular2" })),
        odd(json!({ "mode": "exp_range", "gamma": 0.993 })),
        odd(json!({ "scale_fn": [0.3, 1.0, 0.7], "scale_mode": "cycle" })),
        odd(json!({ "scale_fn": [0.3, 1.0, 0.7], "scale_mode": "iterations" })),
        odd(json!({ "step_size_up": 9, "step_size_down": 0 })),
        odd(json!({ "cycle_momentum": false })),
    ];
    expect_parity("SGD", &[0.1, 0.037], &schedules)?;
    expect_parity("Adam", &[0.1, 0.037], &schedules)
}

#[test]
fn reduce_lr_on_plateau_equals_python() -> Result<()> {
    // Falls, stays, jumps; by small and large steps.
    let metrics: Vec<_> =
        (0..97).map(|at| 0.3 + f64::from(at * 37 % 11) / f64::from(at + 3)).collect();
    let arguments = json!({ "metrics": metrics, "patience": 3, "factor": 0.7 });
    let plateau = |more| with("ReduceLROnPlateau", &arguments, &more);
    let mut schedules = vec![
        json!({ "ReduceLROnPlateau": { "metrics": metrics } }),
        plateau(json!({ "cooldown": 5 })),
        plateau(json!({ "min_lr": [0.013, 0.0001] })),
        plateau(json!({ "min_lr": 0.002, "eps": 0.01 })),
        plateau(json!({ "patience": 0, "threshold": 1.0 })),
        plateau(json!({ "metrics": [-0.5, -0.6, -0.6, -0.7, -0.6], "mode": "max" })),
        // In JSON it becomes null.
        plateau(json!({ "metrics": [0.5, 0.6, f64::NEG_INFINITY, 0.6], "cooldown": 1 })),
    ];
    for mode in ["min", "max"] {
        for threshold_mode in ["rel", "abs"] {
            let more = json!({ "mode": mode, "threshold_mode": threshold_mode, "threshold": 0.02 });
            schedules.push(plateau(more));
        }
    }
    expect_parity("SGD", &[0.1, 0.037], &schedules)
}

#[test]
fn sequential_lr_and_chained_scheduler_equal_python() -> Result<()> {
    let sequence = |schedulers: &[&Value], milestones: &[u64]| json!({ "SequentialLR": { "schedulers": schedulers, "milestones": milestones } });
    let warm_up = json!({ "LinearLR": { "start_factor": 0.01, "total_iters": 5 } });
    let cosine = json!({ "CosineAnnealingLR": { "T_max": 95, "eta_min": 0.0007 } });
    let steps = json!({ "StepLR": { "step_size": 30 } });
    let exponential = json!({ "ExponentialLR": { "gamma": 0.95 } });
    let lambda = json!({ "LambdaLR": { "lr_lambda": [0.3, 1.0, 0.7] } });
    let multiplicative = json!({ "MultiplicativeLR": { "lr_lambda": [0.9, 1.02, 0.97] } });
    let milestones = json!({ "MultiStepLR": { "milestones": [10, 20], "gamma": 0.3 } });
    let restarts = json!({ "CosineAnnealingWarmRestarts": { "T_0": 7, "T_mult": 2 } });
    let polynomial = json!({ "PolynomialLR": { "total_iters": 60, "power": 1.3 } });
    let constant = json!({ "ConstantLR": { "factor": 0.37, "total_iters": 8 } });
    let one_cycle = json!({ "OneCycleLR": { "max_lr": 0.3, "total_steps": 100 } });
    let cyclic =
        json!({ "CyclicLR": { "base_lr": 0.01, "max_lr": [0.1, 0.2], "step_size_up": 17 } });
    let sequences = [
        sequence(&[&warm_up, &cosine], &[5]),
        sequence(&[&warm_up, &steps], &[5]),
        // The warm-up is cut short, and each of the other schedules comes second in one sequence.
        sequence(&[&warm_up, &milestones, &cosine, &warm_up, &steps], &[3, 40, 90, 170]),
        sequence(&[&cosine, &warm_up], &[30]),
        sequence(&[&warm_up, &exponential, &lambda, &exponential], &[5, 60, 100]),
        sequence(&[&lambda, &warm_up], &[30]),
        sequence(&[&warm_up, &restarts, &constant, &polynomial], &[5, 90, 110]),
        sequence(&[&restarts, &cyclic, &steps], &[50, 120]),
        sequence(&[&constant, &restarts], &[10]),
        sequence(&[&polynomial, &constant], &[70]),
        sequence(&[&one_cycle, &constant, &cosine], &[100, 120]),
        sequence(&[&cyclic, &exponential], &[100]),
        sequence(&[&multiplicative, &warm_up, &multiplicative], &[20, 40]),
    ];

    let chain = |schedulers: &[&Value]| json!({ "ChainedScheduler": { "schedulers": schedulers } });
    let linear = json!({ "LinearLR": { "start_factor": 0.3, "total_iters": 21 } });
    let exponential = json!({ "ExponentialLR": { "gamma": 0.97 } });
    let steps = json!({ "StepLR": { "step_size": 30, "gamma": 0.7 } });
    let polynomial = json!({ "PolynomialLR": { "total_iters": 260, "power": 1.3 } });
    let one_cycle = json!({ "OneCycleLR": { "max_lr": 0.3, "total_steps": 300 } });
    let cyclic = json!({ "CyclicLR": { "base_lr": 0.01, "max_lr": 0.1, "step_size_up": 17 } });
    let swa = json!({ "SWALR": { "swa_lr": 0.02, "anneal_epochs": 30 } });
    let in_turn = json!({ "SequentialLR": { "schedulers": [linear, cosine], "milestones": [40] } });
    let chains = [
        chain(&[&constant, &exponential]),
        chain(&[&linear, &steps, &cosine]),
        chain(&[&polynomial, &linear]),
        chain(&[&restarts, &linear]),
        chain(&[&linear, &lambda, &exponential]),
        chain(&[&linear, &cyclic]),
        chain(&[&cyclic, &exponential]),
        chain(&[&one_cycle, &steps]),
        chain(&[&exponential, &swa]),
        chain(&[&in_turn, &exponential]),
        chain(&[&constant, &chain(&[&steps, &linear])]),
    ];
    expect_parity("SGD", &[0.1, 0.3], &[&sequences[..], &chains].concat())?;
    expect_parity("Adam", &[0.1, 0.3], &chains)
}

#[test]
fn several_schedulers_of_one_optimizer_equal_python_whenever_they_are_created() -> Result<()> {
    let linear = json!({ "LinearLR": { "start_factor": 0.4 } });
    let lambda = json!({ "LambdaLR": { "lr_lambda": [1.0, 0.9, 0.7, 1.1] } });
    let cosine = json!({ "CosineAnnealingLR": { "T_max": 3 } });
    let steps = json!({ "StepLR": { "step_size": 2 } });
    let one_cycle = json!({ "OneCycleLR": { "max_lr": 0.3, "total_steps": 300 } });
    let cyclic = json!({ "CyclicLR": { "base_lr": 0.01, "max_lr": 0.1, "step_size_up": 17 } });
    let in_turn = json!({ "SequentialLR": { "schedulers": [linear, cosine], "milestones": [40] } });
    let metrics = json!({ "ReduceLROnPlateau": { "metrics": [0.5, 0.6], "patience": 2 } });
    let schedules = [
        json!([[0, linear], [0, lambda]]),
        json!([[0, linear], [0, cosine]]),
        json!([[0, steps], [9, lambda]]),
        json!([[0, linear], [20, cosine], [60, in_turn]]),
        json!([[0, linear], [5, one_cycle], [50, linear]]),
        json!([[0, cyclic], [30, steps], [31, cyclic]]),
        json!([[0, metrics], [40, lambda]]),
        json!([[0, steps], [20, { "SWALR": { "swa_lr": 0.05, "anneal_epochs": 0 } }]]),
    ];
    expect_parity("SGD", &[0.05, 0.3], &schedules)
}
