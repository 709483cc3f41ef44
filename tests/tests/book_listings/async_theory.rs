//! Chapter "What theory says".

use super::*;
use crate::async_theory::quadratic;

#[test]
fn what_theory_says_of_a_quadratic_is_as_the_book_shows() -> Result<()> {
    let (text, picture) = &*quadratic()?;
    expect_listing("async_momentum.svg", picture, EXACT)?;

    let (momentum, rest) = text.split_once("\nDivergence, M = ").context("no limits")?;
    let (in_turn, rest) = rest.split_once("\nDivergence, M workers").context("no queue")?;
    let (queue, regret) = rest.split_once("\nRegret").context("no regret")?;
    let shown = "$ cargo run -rq -p async-update -- quadratic --plot .\n";
    // The results of threads are not compared.
    expect_listing("async_momentum.txt", &format!("{shown}{momentum}"), EXACT)?;
    expect_listing("async_in_turn.txt", &format!("Divergence, M = {in_turn}"), EXACT)?;
    expect_listing("async_queue.txt", &format!("Divergence, M workers{queue}"), EXACT)?;
    expect_listing("async_regret.txt", &format!("Regret{regret}"), EXACT)
}

/// S1.29: eight workers fail with a learning rate at which one learns.
#[test]
fn a_network_too_has_a_limit_that_falls_with_the_workers_as_the_book_shows() -> Result<()> {
    let listing = replayed("async_limit.txt")?;
    let losses = numbers_of_loss(&listing)?;
    ensure!(losses.len() == 4, "one worker and eight, each at a low and a high rate: {listing}");
    for pair in losses.chunks(2) {
        // The loss of guessing among ten digits is ln 10 = 2.3.
        ensure!(pair[0] < 1.0 && pair[1] > 1.5, "{listing}");
    }
    expect(&[("async_limit.txt", &listing, &same_words)])
}
