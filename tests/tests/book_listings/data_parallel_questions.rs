//! Chapter "Two threads of questions, answered".

use anyhow::{Context, Result};
use tests::programs::{dp_basic, example, launch};

use super::alike::same;
use super::listing::{LAST_DIGIT, TRAINED, expect_listing};
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
fn the_questions_are_answered_as_the_book_shows() -> Result<()> {
    for rows in QUESTIONS {
        let flags = format!("answers {rows}");
        let shown = format!("$ cargo run -rq -p dp-basic -- {flags}\n");
        let name = format!("answers_{}.txt", rows.replace(' ', "_"));
        let text = printed(dp_basic(flags.split(' '))?)?;
        expect_listing(&name, &(shown + text.trim_end() + "\n"), LAST_DIGIT)?;
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
