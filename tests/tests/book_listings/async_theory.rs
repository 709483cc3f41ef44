//! Chapter "What theory says".

use std::fs;

use anyhow::{Context, Result};
use tests::Job;
use tests::programs::async_update;

use super::listing::{EXACT, expect_listing};

#[test]
fn what_theory_says_of_a_quadratic_is_as_the_book_shows() -> Result<()> {
    let job = Job::new()?;
    let ended = job.run(async_update(["quadratic", "--plot", "."])?)?.expect_success()?;
    let picture = fs::read_to_string(job.directory().join("momentum.svg"))?;
    expect_listing("async_momentum.svg", &picture, EXACT)?;

    let (momentum, rest) = ended.stdout.split_once("\nDivergence, M = ").context("no limits")?;
    let (in_turn, rest) = rest.split_once("\nDivergence, M workers").context("no queue")?;
    let (queue, regret) = rest.split_once("\nRegret").context("no regret")?;
    let shown = "$ cargo run -rq -p async-update -- quadratic --plot .\n";
    // What threads have come to is not compared.
    expect_listing("async_momentum.txt", &format!("{shown}{momentum}"), EXACT)?;
    expect_listing("async_in_turn.txt", &format!("Divergence, M = {in_turn}"), EXACT)?;
    expect_listing("async_queue.txt", &format!("Divergence, M workers{queue}"), EXACT)?;
    expect_listing("async_regret.txt", &format!("Regret{regret}"), EXACT)
}
