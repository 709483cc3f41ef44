//! dp-custom-criterion rejects input that it cannot work with before it does any work, and says
//! what it found and what it expected. A comparison that fails leaves nothing behind.

use crate::prelude::*;

/// How long the processes of a killed comparison may take to end.
const SOON: Duration = Duration::from_secs(10);

/// Arguments that the program itself rejects.
fn refused(arguments: &str, texts: &[&str]) -> Result<()> {
    expect_refusal(dp_custom_criterion(arguments.split(' '))?, 1, &[&["error: "], texts].concat())
}

/// Arguments that are rejected when they are parsed.
fn misspelt(arguments: &str, texts: &[&str]) -> Result<()> {
    expect_refusal(dp_custom_criterion(arguments.split(' '))?, 2, texts)
}

#[test]
fn devices_that_make_no_sense_are_refused() -> Result<()> {
    let texts = ["--devices <DEVICES>", "device is cuda:99, but must be"];
    misspelt("--devices cuda:99", &texts)?;
    misspelt("compare --devices cuda:99", &texts)
}

#[test]
fn an_output_device_that_is_nowhere_is_refused() -> Result<()> {
    let expected = "--devices is cpu:0, but must be two or more with --method output-device";
    refused("--method output-device", &[expected])?;
    refused("--method output-device --devices cpu:1", &["--devices is cpu:1, but"])
}

#[test]
fn a_method_and_a_number_of_processes_that_do_not_go_together_are_refused() -> Result<()> {
    let texts =
        ["devices is cpu:0,cpu:1", "one for each rank on this host, here 1", "cargo launch -n 2"];
    refused("--method ddp --devices 2xcpu", &texts)?;
    let text =
        "--method is data-parallel, but must be ddp or apex where there are several ranks, here 2";
    expect_refusal(launch(2, &dp_custom_criterion([])?)?, 1, &[text])?;
    let rank = launch(1, &dp_custom_criterion(["compare"])?)?;
    expect_refusal(rank, 1, &["compare starts all ranks by itself: run it without a launcher"])
}

#[test]
fn a_batch_that_makes_no_sense_is_refused() -> Result<()> {
    misspelt("--batch-size 0", &["invalid value '0' for '--batch-size"])?;
    let text = "--batch-size is 44, but must be at most 43, the pairs of the corpus";
    refused(&format!("--corpus {} --batch-size 44", corpus()), &[text])?;
    let odd = dp_custom_criterion(["--method", "ddp", "--batch-size", "7"])?;
    let text = "--batch-size is 7, but must be a multiple of 2, the ranks";
    expect_refusal(launch(2, &odd)?, 1, &[text])?;
    for batch_size in ["0", "9"] {
        let texts = ["--batch-size is", "2 or a multiple of it: an equal share for each device"];
        refused(&format!("compare --batch-size {batch_size}"), &texts)?;
    }
    Ok(())
}

#[test]
fn a_broken_corpus_or_vocabulary_is_refused() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let write = |name: &str, content: &str| -> Result<String> {
        let path = directory.path().join(name);
        fs::write(&path, content)?;
        Ok(path.display().to_string())
    };
    let corpus = write("corpus.txt", "one\ttwo\nno tab\n")?;
    let vocab = write("vocab.json", "[\"<pad>\", \"<unk>\", \"<eos>\", \"<sos>\"")?;
    for command in ["", "compare "] {
        let text = "corpus.txt: line 2 has 0 tabs: \"no tab\"; expected two sentences per line";
        refused(&format!("{command}--corpus {corpus}"), &[text])?;
        let text = "vocab.json: EOF while parsing a list at line 1 column 35; expected what the";
        refused(&format!("{command}--vocab {vocab}"), &[text])?;
        let texts = ["--vocab-size is 100, but must be at least ", "the tokens of the vocabulary"];
        refused(&format!("{command}--vocab-size 100"), &texts)?;
    }
    Ok(())
}

/// A comparison of small models that runs for a while.
fn comparison(flags: &str) -> Result<Command> {
    let sizes = "compare --hidden=32 --layers=1 --seq-len=16 --vocab-size=2000";
    dp_custom_criterion(sizes.split(' ').chain([UNHURRIED]).chain(flags.split(' ')))
}

#[test]
fn a_comparison_without_anything_to_compare_is_refused() -> Result<()> {
    let text = "--devices is cpu:0, but must be at least two devices, such as 4xcpu";
    refused("compare --devices cpu:0", &[text])?;
    misspelt("compare --steps 2", &["invalid value '2' for '--steps"])
}

#[test]
fn a_budget_that_is_no_size_or_holds_no_pair_is_refused() -> Result<()> {
    for budget in ["2GB", "much", "0GiB", "-1GiB"] {
        let text = "expected a number and B, KiB, MiB or GiB, such as 2GiB";
        misspelt(&format!("compare --budget={budget}"), &[text])?;
    }
    let said = [
        "error: --budget is 100 KiB, but must be at least ",
        "MiB, which data-parallel needs for a batch of 2, a pair for each device",
    ];
    expect_refusal(comparison("--budget 100KiB")?, 1, &said)
}

#[test]
fn a_run_that_takes_too_long_is_ended_and_named() -> Result<()> {
    let job = Job::new()?;
    let ended = job.run(comparison("--steps 10000 --timeout 1")?)?.expect_code(1)?;
    ended.expect_messages(&["error: data-parallel took more than 1 s; --timeout allows more"])?;
    job.expect_nobody_left(SOON)
}

#[test]
fn a_rank_that_dies_is_named_and_the_others_end() -> Result<()> {
    let job = Job::new()?;
    let mut comparison = job.start(comparison("--steps 60")?)?;
    kill(job.rank(1, "dp-custom-criterion")?, Signal::SIGKILL)?;
    let said = "error: ddp, rank 1, failed (signal: 9 (SIGKILL)); it left no message";
    comparison.wait()?.expect_code(1)?.expect_messages(&[said])?;
    job.expect_nobody_left(SOON)
}

#[test]
fn the_runs_of_a_comparison_that_is_killed_end_with_it() -> Result<()> {
    let job = Job::new()?;
    let mut comparison = job.start(comparison("--steps 10000")?)?;
    job.runs()?;
    ensure!(job.processes()?.len() == 2, "there is no run, or several");
    kill(comparison.pid(), Signal::SIGKILL)?;
    ensure!(!comparison.wait()?.status.success(), "it has not been killed");
    job.expect_nobody_left(SOON)
}
