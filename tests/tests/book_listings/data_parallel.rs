//! Chapter "One process, several devices: DataParallel".

use std::fs;
use std::process::Command;

use anyhow::{Context, Result};
use tests::Job;
use tests::programs::{dp_basic, example, launch, workspace};

use super::alike::same;
use super::listing::{EXACT, LAST_DIGIT, TRAINED, expect_listing, expect_times};
use super::printed;

const RUN: &str = "cargo run -rq -p tch-parallel --example";

/// The questions as the book asks them, grouped by listing.
const QUESTIONS: [&str; 23] = [
    "S0.1",
    "S0.2",
    "S0.4",
    "S0.5",
    "S0.6",
    "S0.8 S0.9",
    "S0.11",
    "S0.12",
    "S0.13",
    "S0.19 S0.20",
    "S0.21",
    "S0.22",
    "S0.23",
    "S0.25 S0.26",
    "S0.27",
    "S0.30 S0.31",
    "S2.1 S2.8",
    "S2.9 S2.10",
    "S2.11",
    "S2.12",
    "S2.16 S2.18",
    "S2.14 S2.17 S2.19",
    "S2.20 S2.21 S2.22",
];

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

#[test]
fn the_questions_are_answered_as_the_book_shows() -> Result<()> {
    for rows in QUESTIONS {
        let flags = format!("answers {rows}");
        let name = format!("answers_{}.txt", rows.replace(' ', "_"));
        let text = printed(dp_basic(flags.split(' '))?)?;
        expect_listing(&name, &(shown(&flags) + text.trim_end() + "\n"), LAST_DIGIT)?;
    }
    Ok(())
}

#[test]
fn the_forums_script_says_how_many_gpus_it_uses_and_costs_the_same_on_all() -> Result<()> {
    let name = "using_gpus";
    let one = printed(example(name, [])?)?;
    let four = printed(example(name, ["4xcpu"])?)?;
    let (using, epochs) = four.split_once('\n').context("it prints several lines")?;
    assert_eq!(using, "Using 4 GPUs: cpu:0,cpu:1,cpu:2,cpu:3");
    // Sums of four parts round differently.
    let listing = format!("$ {RUN} {name}\n{one}$ {RUN} {name} -- 4xcpu\n{four}");
    assert!(same(&one, epochs, |_, _| LAST_DIGIT), "{listing}");
    expect_listing("using_gpus.txt", &listing, TRAINED)
}

#[test]
fn what_both_kinds_of_data_parallelism_send_is_counted() -> Result<()> {
    let name = "data_parallel_or_ddp";
    let mut program = example(name, [])?;
    program.env("TCH_PARALLEL_SHARED_MEMORY", "0");
    let text = printed(launch(4, &program)?)?;
    let shown = format!("$ TCH_PARALLEL_SHARED_MEMORY=0 cargo launch -n 4 -- {RUN} {name}\n");
    expect_listing(&format!("{name}.txt"), &(shown + &text), LAST_DIGIT)
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
