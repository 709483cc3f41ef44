//! Chapter "Parameter server and ring".

use super::*;
use crate::async_ring::{TRAFFIC, cost, traffic};

#[test]
fn the_articles_figures_are_as_the_book_shows() -> Result<()> {
    let (shown, program) = first_command("ring_scatter_reduce")?;
    let text = printed(program)?;
    let end = text.find("\nThe first iteration of all-gather").context("no all-gather")?;
    expect_listing("ring_scatter_reduce.txt", &(shown + &text[..end]), EXACT)?;
    expect_listing("ring_all_gather.txt", &text[end + 1..], EXACT)
}

#[test]
fn the_bytes_of_both_methods_are_as_the_book_shows() -> Result<()> {
    for method in ["sync-ps", "ring"] {
        let flags = format!("{method} {TRAFFIC}");
        let mut listing = format!(
            "$ for n in 2 4 5 8; do\n    cargo launch -n $n async-update -- {flags} | grep sent\n  done\n"
        );
        for ranks in [2, 4, 5, 8] {
            let printed = &traffic(method, ranks)?.printed;
            let sent = printed.lines().find(|line| line.contains("sent")).context("no bytes")?;
            listing += &format!("{sent}\n");
        }
        expect_listing(&format!("{}_bytes.txt", method.replace('-', "_")), &listing, EXACT)?;
    }
    Ok(())
}

cases! {
    /// Random numbers differ in their last bits between processors, and the distances here consist of such bits.
    fn the_ring_is_compared_with_other_ways_as_the_book_shows() =
        expect_replay("ring_check.txt", 1e-5);
}

#[test]
fn what_an_update_costs_is_as_the_book_shows() -> Result<()> {
    let (text, svg) = &*cost(4)?;
    let shown = "$ cargo launch -n 4 async-update -- cost --plot plots\n".to_owned();
    expect_times("cost", &(shown + text), svg)
}

#[test]
fn what_an_all_reduce_costs_on_one_host_is_as_the_book_shows() -> Result<()> {
    for (name, setting) in [("exchange_shared_memory.txt", ""), ("exchange_sockets.txt", "0")] {
        let mut command = launch(2, &example("exchange", [])?)?;
        command.env("TCH_PARALLEL_SHARED_MEMORY", setting);
        expect_listing(name, &Job::new()?.run(command)?.expect_success()?.stdout, EXACT)?;
    }
    Ok(())
}
