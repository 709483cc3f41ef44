//! The book's outputs and pictures are those that the programs print and draw. There is a file for
//! each chapter.
//!
//! `UPDATE_BOOK=1 cargo test --release -p tests book_listings::` rewrites the outputs.

mod alike;
mod async_compare;
mod async_ring;
mod async_theory;
mod async_update;
mod bert;
mod data_parallel;
mod ddp_inside;
mod ddp_mnist;
mod examples;
mod flags;
mod imagenet;
mod index;
mod ladder;
mod launching;
mod listing;
mod pyramidnet;
mod sampler;
mod sharding;

use std::process::Command;

use anyhow::{Context, Result};
use tests::printed;
use tests::programs::launch_with;

/// The command that extracts the loss from the output of async-update.
const FOR_LOSS: &str = "grep -o 'loss=.*'";

/// The output of [`FOR_LOSS`] for a program, and the loss as a number.
fn loss(program: Command) -> Result<(String, f64)> {
    let text = printed(program)?;
    let line = text.find("loss=").and_then(|start| text[start..].lines().next());
    let line = line.context("no loss")?;
    let number = line["loss=".len()..].split(',').next().unwrap_or_default();
    Ok((line.into(), number.parse()?))
}

/// Runs a program as ranks whose lines start with their number, and returns its lines by rank.
fn run_by_rank(ranks: usize, program: &Command) -> Result<String> {
    let flags = ["-n", &ranks.to_string(), "--tee", "1", "--log-dir", "logs"];
    Ok(by_rank(&printed(launch_with(&flags, program)?)?))
}

/// Groups the lines by rank, rank 0 first. As printed, they are mixed differently in every run.
fn by_rank(printed: &str) -> String {
    let mut lines: Vec<_> = printed.lines().collect();
    lines.sort_by_key(|line| line.split_once("]: ").map(|(rank, _)| rank));
    lines.iter().map(|line| format!("{line}\n")).collect()
}

/// The first two paragraphs of a text, which are tables, and the rest.
fn after_two(text: &str) -> Option<(&str, &str)> {
    let (at, gap) = text.match_indices("\n\n").nth(1)?;
    Some((&text[..at], &text[at + gap.len()..]))
}
