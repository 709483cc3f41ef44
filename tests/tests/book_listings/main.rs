//! What the book says a program prints is what it prints, and its pictures show what a run draws.
//! A file for each chapter.
//!
//! `UPDATE_BOOK=1 cargo test --release -p tests --test book_listings` writes the outputs anew.

mod async_ring;
mod bert;
mod data_parallel;
mod data_parallel_questions;
mod ddp_inside;
mod ddp_mnist;
mod examples;
mod imagenet;
mod index;
mod ladder;
mod launching;
mod listing;
mod pyramidnet;
mod sampler;

use std::process::Command;

use anyhow::Result;
use tests::Job;
use tests::programs::launch_with;

/// What a program prints that ends well.
fn printed(program: Command) -> Result<String> {
    Ok(Job::new()?.run(program)?.expect_success()?.stdout)
}

/// Runs a program as ranks whose lines carry their number, and gives its lines by rank.
fn run_by_rank(ranks: usize, program: &Command) -> Result<String> {
    let flags = ["-n", &ranks.to_string(), "--tee", "1", "--log-dir", "logs"];
    Ok(by_rank(&printed(launch_with(&flags, program)?)?))
}

/// The lines of each rank together, rank 0 first; printed, they are mixed anew in every run.
fn by_rank(printed: &str) -> String {
    let mut lines: Vec<_> = printed.lines().collect();
    lines.sort_by_key(|line| line.split_once("]: ").map(|(rank, _)| rank));
    lines.iter().map(|line| format!("{line}\n")).collect()
}
