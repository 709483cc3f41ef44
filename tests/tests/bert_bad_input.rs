//! dp-custom-criterion rejects input that it cannot work with before it does any work, and says
//! what it found and what it expected. A comparison that fails leaves nothing behind.

use crate::prelude::*;

/// How long the processes of a killed comparison may take to end.
const SOON: Duration = Duration::from_secs(10);

/// Arguments that the program itself rejects.
fn refused(arguments: &str, texts: &[&str]) -> Result<()> {
    expect_refusal(dp_custom_criterion(arguments.split(' '))?, 1, &[&["error: "], texts].concat())
}

cases! {
    fn flags_that_make_no_sense_are_refused() =
        expect_refusals(|line| dp_custom_criterion(line.split(' ')), &[
            ("--devices cuda:99", 2, ["'--devices <DEVICES>': device is cuda:99, but must be"]),
            ("compare --devices cuda:99", 2, ["'--devices <DEVICES>': device is cuda:99, but must be"]),
            ("compare --devices cpu:0", 1, ["--devices is cpu:0, but must be at least two devices, such as 4xcpu"]),
            ("--method output-device", 1, ["--devices is cpu:0, but must be two or more with --method output-device"]),
            ("--method output-device --devices cpu:1", 1, ["--devices is cpu:1, but"]),
            ("--method ddp --weighted", 1,
                ["--weighted is given, but must be left out unless --method is custom-criterion"]),
            ("--method apex --find-unused-parameters", 1,
                ["--find-unused-parameters is given, but must be left out unless --method is ddp"]),
            ("--hidden 33", 1, ["--hidden is 33, but must be an even number"]),
            ("--attn-heads 5", 1, ["--attn-heads is 5, but must be a divisor of --hidden, which is 256"]),
            ("--dropout NaN", 1, ["--dropout is NaN, but must be a share from 0 to 1"]),
            ("--hidden=0", 2, ["'--hidden <HIDDEN>': 0 is not in 1.."]),
            ("--layers=0", 2, ["'--layers <LAYERS>': 0 is not in 1.."]),
            ("--attn-heads=0", 2, ["'--attn-heads <ATTN_HEADS>': 0 is not in 1.."]),
            ("--batch-size 0", 2, ["invalid value '0' for '--batch-size"]),
            ("compare --batch-size 0", 1,
                ["--batch-size is 0, but must be 2 or a multiple of it: an equal share for each device"]),
            ("compare --batch-size 9", 1,
                ["--batch-size is 9, but must be 2 or a multiple of it: an equal share for each device"]),
            ("compare --steps 2", 2, ["invalid value '2' for '--steps"]),
            ("compare --budget=2GB", 2, ["expected a number and B, KiB, MiB or GiB, such as 2GiB"]),
            ("compare --budget=much", 2, ["expected a number and B, KiB, MiB or GiB, such as 2GiB"]),
            ("compare --budget=0GiB", 2, ["expected a number and B, KiB, MiB or GiB, such as 2GiB"]),
            ("compare --budget=-1GiB", 2, ["expected a number and B, KiB, MiB or GiB, such as 2GiB"]),
        ]);
}

#[test]
fn a_method_and_a_number_of_processes_that_do_not_go_together_are_refused() -> Result<()> {
    let texts =
        ["devices is cpu:0,cpu:1", "one for each rank on this host, here 1", "cargo launch -n 2"];
    refused("--method ddp --devices 2xcpu", &texts)?;
    let text = "--method is data-parallel, but must be a distributed one, such as ddp, where there \
                are several ranks, here 2";
    expect_refusal(launch(2, &dp_custom_criterion([])?)?, 1, &[text])?;
    let rank = launch(1, &dp_custom_criterion(["compare"])?)?;
    expect_refusal(rank, 1, &["compare starts all ranks by itself: run it without a launcher"])
}

#[test]
fn a_batch_that_does_not_fit_is_refused() -> Result<()> {
    let text = "--batch-size is 44, but must be at most 43, the pairs of the corpus";
    refused(&format!("--corpus {} --batch-size 44", corpus()), &[text])?;
    let odd = dp_custom_criterion(["--method", "ddp", "--batch-size", "7"])?;
    let text = "--batch-size is 7, but must be a multiple of 2, the ranks";
    expect_refusal(launch(2, &odd)?, 1, &[text])
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
fn a_budget_that_holds_no_pair_is_refused() -> Result<()> {
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
    // Otherwise it would fail too, and might be named.
    kill(job.rank(0, "dp-custom-criterion")?, Signal::SIGSTOP)?;
    kill(job.rank(1, "dp-custom-criterion")?, Signal::SIGKILL)?;
    let said = "error: ddp, rank 1, failed (signal: 9 (SIGKILL)); it left no message";
    comparison.wait()?.expect_code(1)?.expect_messages(&[said])?;
    job.expect_nobody_left(SOON)
}

#[test]
fn the_runs_of_a_comparison_that_is_killed_end_with_it() -> Result<()> {
    let job = Job::new()?;
    let mut comparison = job.start(comparison("--steps 10000")?)?;
    job.wait_for_run()?;
    ensure!(job.processes()?.len() == 2, "there is no run, or several");
    kill(comparison.pid(), Signal::SIGKILL)?;
    ensure!(!comparison.wait()?.status.success(), "it has not been killed");
    job.expect_nobody_left(SOON)
}
