//! The book's outputs and pictures are those that the programs print and draw. There is a file for each chapter.
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
mod first_steps;
mod flags;
mod imagenet;
mod index;
mod ladder;
mod launching;
mod listing;
mod pyramidnet;
mod sampler;
mod scaling;
mod sharding;

use crate::prelude::*;
use listing::*;
use tests::commands::command;

/// Stands in a listing for lines that the book leaves out.
const CUT: &str = "…\n";

/// The command that extracts the loss from the output of async-update.
const FOR_LOSS: &str = "grep -o 'loss=.*'";

/// What [`FOR_LOSS`] makes of a text.
fn for_loss(text: &str) -> Result<&str> {
    text.find("loss=").and_then(|start| text[start..].lines().next()).context("no loss")
}

/// The losses in what [`FOR_LOSS`] has extracted.
fn numbers_of_loss(listing: &str) -> Result<Vec<f64>> {
    let lines = listing.lines().filter_map(|line| line.strip_prefix("loss="));
    lines.map(|line| Ok(line.split(',').next().unwrap_or_default().parse::<f64>()?)).collect()
}

/// Compares a listing with what its commands print.
fn expect_replay(name: &str, tolerance: f64) -> Result<()> {
    expect_listing(name, &replayed(name)?, tolerance)
}

/// The same for what only [`same_words`] can compare.
fn expect_words_of_replay(name: &str) -> Result<()> {
    expect(&[(name, &replayed(name)?, &same_words)])
}

/// Compares a listing, and the picture of the same name, with what its one command prints and draws.
fn expect_drawn(name: &str) -> Result<()> {
    let (shown, program) = first_command(name)?;
    let (text, svg) = printed_and_written(program, &format!("{name}.svg"))?;
    expect_times(name, &(shown + &text), &svg)
}

/// The line with which a listing begins, and the command in it.
fn first_command(name: &str) -> Result<(String, Command)> {
    let listing = source(format!("book/src/output/{name}.txt"))?;
    let line = listing.lines().next().unwrap_or_default();
    Ok((format!("{line}\n"), command(line.trim_start_matches("$ "))?))
}

/// The program with flags that cut short what is measured and not compared, unless the listing is to be written anew.
fn cut_short(mut program: Command, flags: &[&str]) -> Command {
    if env::var_os("UPDATE_BOOK").is_none() {
        program.args(flags);
    }
    program
}

/// The commands of a listing, each with what it prints now.
fn replayed(name: &str) -> Result<String> {
    let listing = source(format!("book/src/output/{name}"))?;
    let commands = listing.lines().filter_map(|line| line.strip_prefix("$ "));
    let replayed = commands.map(shown).collect::<Result<String>>()?;
    ensure!(!replayed.is_empty(), "{name} shows no command");
    Ok(replayed)
}

/// A command with what it prints: sorted or only the loss if it asks for that, and by rank if its
/// lines begin with the ranks' numbers.
fn shown(line: &str) -> Result<String> {
    let (typed, filter) = line.split_once(" | ").unwrap_or((line, ""));
    let text = printed(command(typed)?)?;
    let text = match filter {
        "sort" => sorted(&text),
        FOR_LOSS => for_loss(&text)?.to_owned(),
        "" if line.contains(" --tee 1 ") => by_rank(&text),
        "" => text,
        _ => bail!("no test can do what `{filter}` does"),
    };
    Ok(format!("$ {line}\n{}\n", text.trim_end()))
}

/// What each of two nodes on this machine, with two ranks each, prints.
fn printed_by_two_nodes(program: &Command) -> Result<Vec<String>> {
    let (job, port) = (Job::new()?, free_port()?.to_string());
    let start = |node| {
        let flags = ["--nnodes", "2", "--node-rank", node, "-n", "2"];
        let address = ["--master-addr", "127.0.0.1", "--master-port", &port];
        job.start(launch_with(&[&flags[..], &address].concat(), program)?)
    };
    let nodes = [start("0")?, start("1")?];
    nodes.into_iter().map(|mut node| Ok(node.wait()?.expect_success()?.stdout)).collect()
}

fn sorted(text: &str) -> String {
    let mut lines: Vec<_> = text.lines().collect();
    lines.sort_unstable();
    lines.iter().map(|line| format!("{line}\n")).collect()
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
