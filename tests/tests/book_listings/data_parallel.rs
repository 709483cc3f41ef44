//! Chapter "One process, several devices: DataParallel".

use std::fs;
use std::process::Command;

use anyhow::Result;
use tests::Job;
use tests::programs::{dp_basic, example, workspace};

use super::listing::{EXACT, expect_listing, expect_times};
use super::printed;

#[test]
fn on_any_number_of_devices_the_losses_are_those_of_one() -> Result<()> {
    let run = |name: &str| printed(example(name, [])?);
    let losses = run("data_parallel")?;
    assert_eq!(losses, run("single_device")?);
    for devices in ["cpu", "3xcpu", "4xcpu"] {
        assert_eq!(losses, printed(example("data_parallel", [devices])?)?, "{devices}");
    }
    let shown = "$ cargo run -rq -p tch-parallel --example data_parallel\n";
    // The weights are trained on numbers whose last bits differ between processors.
    expect_listing("data_parallel.txt", &(shown.to_owned() + &losses), 0.0015)
}

#[test]
fn from_one_device_to_several_it_is_this_diff() -> Result<()> {
    let mut diff = Command::new("diff");
    diff.args(["-U", "1", "--label", "single_device.rs", "--label", "data_parallel.rs"])
        .args(["single_device.rs", "data_parallel.rs"])
        .current_dir(workspace().join("core/examples"));
    // diff exits with 1 if it finds differences.
    let ended = Job::new()?.run(diff)?.expect_code(1)?;
    expect_listing("single_device_to_data_parallel.diff", &ended.stdout, EXACT)
}

#[test]
fn a_traced_step_of_the_toy_is_as_the_book_shows() -> Result<()> {
    expect_dp_basic("trace_toy.txt", "trace --no-times")
}

#[test]
fn a_traced_step_of_59_million_parameters_is_as_the_book_shows() -> Result<()> {
    expect_drawn("trace_mlp", "trace --model mlp --devices 2xcpu")
}

#[test]
fn a_model_in_two_parts_is_as_the_book_shows() -> Result<()> {
    expect_drawn("model_parallel", "model-parallel --split")
}

#[test]
fn the_speed_up_is_measured_as_the_book_shows() -> Result<()> {
    let flags = "speedup";
    let text = printed(dp_basic(flags.split(' '))?)?;
    // All of its numbers are times, or quotients of times.
    expect_listing("speedup.txt", &(shown(flags) + &text), f64::INFINITY)
}

/// What dp-basic prints.
fn expect_dp_basic(name: &str, flags: &str) -> Result<()> {
    expect_listing(name, &(shown(flags) + &printed(dp_basic(flags.split(' '))?)?), EXACT)
}

/// What dp-basic prints and draws in the same run.
fn expect_drawn(name: &str, flags: &str) -> Result<()> {
    let picture = format!("{name}.svg");
    let flags = format!("{flags} --svg {picture}");
    let job = Job::new()?;
    let text = shown(&flags) + &job.run(dp_basic(flags.split(' '))?)?.expect_success()?.stdout;
    let svg = fs::read_to_string(job.directory().join(&picture))?;
    expect_times(&format!("{name}.txt"), &text, &picture, &svg)
}

fn shown(flags: &str) -> String {
    format!("$ cargo run -rq -p dp-basic -- {flags}\n")
}
