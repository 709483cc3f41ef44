//! Learning rates equal Python's to the last bit, in every epoch.

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use tests::programs::example;
use tests::{Job, python};

/// More epochs than any cosine below takes to fall, rise and fall again.
const EPOCHS: usize = 250;

/// Computes each schedule in Rust and in Python, and compares them.
fn expect_parity(lr: &str, schedules: &[Value]) -> Result<()> {
    let job = Job::new()?;
    let mut arguments = vec![EPOCHS.to_string(), lr.to_owned()];
    arguments.extend(schedules.iter().map(Value::to_string));
    let arguments = || arguments.iter().map(String::as_str);
    let rust = job.run(example("lr_schedules", arguments())?)?.expect_success()?;
    let python = job.run(python("lr_schedulers", arguments())?)?.expect_success()?;
    let lines = [rust.stdout.lines().count(), python.stdout.lines().count()];
    ensure!(lines == [schedules.len(); 2], "{lines:?} courses of {}", schedules.len());

    for (schedule, (rust, python)) in
        schedules.iter().zip(rust.stdout.lines().zip(python.stdout.lines()))
    {
        let [rust, python]: [Vec<f64>; 2] =
            [serde_json::from_str(rust)?, serde_json::from_str(python)?];
        ensure!(rust.len() == EPOCHS && python.len() == EPOCHS, "epochs are missing");
        ensure!(rust.iter().any(|&rate| rate != rust[0]), "{schedule} changes nothing");
        for (epoch, (ours, theirs)) in rust.iter().zip(&python).enumerate() {
            let equal = ours.to_bits() == theirs.to_bits();
            ensure!(equal, "{ours} against {theirs} in epoch {epoch} of {schedule} from {lr}");
        }
    }
    Ok(())
}

#[test]
fn step_lr_equals_python() -> Result<()> {
    let schedules = [
        json!({ "StepLR": { "step_size": 30 } }),
        json!({ "StepLR": { "step_size": 7, "gamma": 0.97 } }),
    ];
    expect_parity("0.1", &schedules)
}

#[test]
fn multi_step_lr_equals_python() -> Result<()> {
    let schedules = [
        json!({ "MultiStepLR": { "milestones": [150, 225] } }),
        json!({ "MultiStepLR": { "milestones": [90, 3, 3, 60, 3], "gamma": 0.7 } }),
        json!({ "MultiStepLR": { "milestones": [0, 5], "gamma": 0.2 } }),
    ];
    expect_parity("0.3", &schedules)
}

#[test]
fn exponential_lr_equals_python() -> Result<()> {
    let schedules = [
        json!({ "ExponentialLR": { "gamma": 0.95 } }),
        json!({ "ExponentialLR": { "gamma": 1.003 } }),
    ];
    expect_parity("0.1", &schedules)
}

#[test]
fn lambda_lr_equals_python() -> Result<()> {
    expect_parity("0.1", &[json!({ "LambdaLR": { "lr_lambda": [0.3, 1.0, 0.7, 1.1, 0.0] } })])
}

#[test]
fn linear_lr_equals_python() -> Result<()> {
    let down = json!({ "start_factor": 0.9, "end_factor": 0.07, "total_iters": 211 });
    expect_parity("0.1", &[json!({ "LinearLR": {} }), json!({ "LinearLR": down })])
}

#[test]
fn cosine_annealing_lr_equals_python_even_when_it_rises_again() -> Result<()> {
    let schedules = [
        json!({ "CosineAnnealingLR": { "T_max": 100 } }),
        json!({ "CosineAnnealingLR": { "T_max": 37, "eta_min": 0.0007 } }),
        json!({ "CosineAnnealingLR": { "T_max": 1 } }),
    ];
    expect_parity("0.1", &schedules)?;
    expect_parity("0.0123", &schedules)
}

#[test]
fn sequential_lr_equals_python() -> Result<()> {
    let sequence = |schedulers: &[&Value], milestones: &[u64]| json!({ "SequentialLR": { "schedulers": schedulers, "milestones": milestones } });
    let warm_up = json!({ "LinearLR": { "start_factor": 0.01, "total_iters": 5 } });
    let cosine = json!({ "CosineAnnealingLR": { "T_max": 95, "eta_min": 0.0007 } });
    let steps = json!({ "StepLR": { "step_size": 30 } });
    let exponential = json!({ "ExponentialLR": { "gamma": 0.95 } });
    let lambda = json!({ "LambdaLR": { "lr_lambda": [0.3, 1.0, 0.7] } });
    let milestones = json!({ "MultiStepLR": { "milestones": [10, 20], "gamma": 0.3 } });
    let schedules = [
        sequence(&[&warm_up, &cosine], &[5]),
        sequence(&[&warm_up, &steps], &[5]),
        // The warm-up is cut short, and each of the other schedules comes second in one sequence.
        sequence(&[&warm_up, &milestones, &cosine, &warm_up, &steps], &[3, 40, 90, 170]),
        sequence(&[&cosine, &warm_up], &[30]),
        sequence(&[&warm_up, &exponential, &lambda, &exponential], &[5, 60, 100]),
        sequence(&[&lambda, &warm_up], &[30]),
    ];
    expect_parity("0.1", &schedules)?;
    expect_parity("0.3", &schedules)
}
