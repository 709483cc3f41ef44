//! Chapter "What theory says".

use std::fs;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use tests::Job;
use tests::programs::{async_update, launch};

use super::listing::{EXACT, expect_listing, expect_words};
use super::printed;

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

/// S1.29: eight workers fail with a learning rate with which one learns.
#[test]
fn a_network_too_has_a_limit_that_falls_with_the_workers_as_the_book_shows() -> Result<()> {
    let mut listing = String::new();
    let mut loss = |command: &str, program: Command| -> Result<f64> {
        let text = printed(program)?;
        let outcome = text.lines().next().context("no outcome")?;
        listing += &format!("$ {command} | grep loss\n{outcome}\n");
        let loss = outcome.split_once(", loss=").and_then(|(_, loss)| loss.split(',').next());
        Ok(loss.context("no loss")?.parse()?)
    };
    let mut one = |lr: &str| {
        let flags = format!("sync-allreduce --lr {lr} --epochs 1");
        let program = async_update(flags.split(' '))?;
        loss(&format!("cargo run -rq -p async-update -- {flags}"), program)
    };
    let (learns, fails) = (one("0.4")?, one("0.8")?);
    let mut eight = |lr: &str| {
        let flags = format!("async-ps --lr {lr} --epochs 1 --step-time 5");
        let program = launch(9, &async_update(flags.split(' '))?)?;
        loss(&format!("cargo launch -n 9 async-update -- {flags}"), program)
    };
    let (eight_learn, eight_fail) = (eight("0.05")?, eight("0.4")?);
    for (learns, fails) in [(learns, fails), (eight_learn, eight_fail)] {
        // A guess among ten digits loses ln 10 = 2.3.
        ensure!(learns < 1.0 && fails > 1.5, "{learns} and {fails}");
    }
    expect_words("async_limit.txt", &listing)
}
