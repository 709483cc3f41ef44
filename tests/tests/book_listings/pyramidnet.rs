//! Chapter "PyramidNet, compared".

use std::fs;
use std::process::Command;

use anyhow::{Context, Result};
use tests::Job;
use tests::programs::{UNHURRIED, ddp_imagenet, example, source};

use super::listing::{EXACT, expect_listing, expect_measured, expect_training};
use super::{after_two, printed, run_by_rank};

#[test]
fn the_articles_network_is_smaller_than_the_one_it_is_taken_for() -> Result<()> {
    let text = printed(example("pyramidnet_parameters", [])?)?;
    let shown = "$ cargo run -rq -p ddp-imagenet --example pyramidnet_parameters\n";
    expect_listing("pyramidnet_parameters.txt", &(shown.to_owned() + &text), EXACT)
}

#[test]
fn from_one_method_to_the_next_it_is_this_diff() -> Result<()> {
    for (from, to, name) in [
        ("single", "data_parallel", "data_parallel"),
        ("data_parallel", "distributed", "ddp"),
        ("distributed", "apex", "apex"),
    ] {
        let job = Job::new()?;
        let mut diff = Command::new("diff");
        diff.args(["-U", "1"]);
        for name in [from, to] {
            let file = format!("{name}.rs");
            fs::write(job.directory().join(&file), training(name)?)?;
            diff.args(["--label", &file]);
        }
        diff.args([format!("{from}.rs"), format!("{to}.rs")]).current_dir(job.directory());
        // diff exits with 1 if it finds differences.
        let ended = job.run(diff)?.expect_code(1)?;
        expect_listing(&format!("compare_{name}.diff"), &ended.stdout, EXACT)?;
    }
    Ok(())
}

/// The part of a method that the book shows, without imports.
fn training(name: &str) -> Result<String> {
    let code = source(format!("ddp-imagenet/src/exhibits/train_cifar/{name}.rs"))?;
    let (_, rest) = code.split_once("// ANCHOR: train\n").context("its beginning is marked")?;
    let (training, _) = rest.split_once("    // ANCHOR_END").context("its end is marked")?;
    Ok(training.to_owned())
}

#[test]
fn a_training_prints_the_repositorys_lines() -> Result<()> {
    let flags = "train-cifar --method ddp --arch pyramidnet20_a24 --batch-size 32 --steps 41";
    let text = run_by_rank(2, &ddp_imagenet(flags.split(' '))?)?;
    let shown = format!("$ cargo launch -n 2 --tee 1 ddp-imagenet -- {flags}\n");
    expect_training("train_cifar.txt", &(shown + &text))
}

#[test]
fn the_comparison_is_as_the_book_shows() -> Result<()> {
    let job = Job::new()?;
    let text = job
        .run(ddp_imagenet(["compare", "--plot", "charts", UNHURRIED])?)?
        .expect_success()?
        .stdout;
    let (tables, words) = after_two(&text).context("words follow the tables")?;
    let shown = "$ cargo run -rq -p ddp-imagenet -- compare --plot charts\n";
    let svg = fs::read_to_string(job.directory().join("charts/memory.svg"))?;
    expect_measured(
        &[("compare.txt", &format!("{shown}{tables}\n")), ("compare_in_words.txt", words)],
        "compare_memory.svg",
        &svg,
    )
}
