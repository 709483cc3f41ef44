//! `cargo xtask bench data-parallel`: dp-custom-criterion's BERT, forward and backward. On one device against the same model in
//! Python, and on two devices against one.

use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;
use clap::Args;

use super::Rounds;
use super::job::{self, Log};
use super::report::{self, MILLISECONDS, Sides, Table, push};
use crate::{command, setup, workspace};

const PROGRAM: &str = "dp-custom-criterion";
const SCRIPT: &str = "tests/python/bert.py";
const CORPUS: &str = "tests/data/pairs.txt";

/// The sizes of codertimo's BERT-pytorch, with the corpus's few words.
const MODEL: [&str; 5] =
    ["--hidden=256", "--layers=8", "--attn-heads=8", "--seq-len=20", "--dropout=0.1"];
/// One with which all batches have a loss: in each there is a pair whose second sentence is the next.
const SEED: &str = "--seed=0";

/// How long a run trains.
#[derive(Clone, Copy)]
struct Training {
    batch: u64,
    steps: u64,
}

/// Rust against Python: libtorch does the work for both, and the larger the batch, the less there is to tell them apart.
const ONE_DEVICE: Training = Training { batch: 8, steps: 32 };
/// One replica against two: the larger the batch, the less the copying of weights weighs. The corpus has 43 pairs.
const REPLICAS: Training = Training { batch: 32, steps: 16 };
/// Steps at a run's start that are not counted: they fetch memory from the system and start threads.
const WARM_UP: usize = 2;

#[derive(Args)]
pub(crate) struct Options {
    #[command(flatten)]
    rounds: Rounds,
}

pub(super) fn run(options: &Options) -> Result<()> {
    let folder = workspace::target_dir()?.join("bench/data-parallel");
    let venv = setup::ensure_python(setup::Level::Full)?;
    command::run(command::cargo().args(["build", "--release", "--package", PROGRAM]))?;

    let rust = |method: &str, devices: usize, threads: usize, training: Training| {
        let mut program = Command::new(workspace::release_executable(PROGRAM.as_ref())?);
        program.args(["--method", method, "--devices", &format!("cpu:{devices}")]);
        let log = format!("{method}-devices-{devices}-threads-{threads}-batch-{}", training.batch);
        measure(program, threads, training, folder.join(log))
    };
    let python = |threads: usize| {
        let mut program = Command::new(venv.executable("python"));
        program.arg(workspace::root().join(SCRIPT));
        measure(program, threads, ONE_DEVICE, folder.join(format!("python-threads-{threads}")))
    };
    let languages = |threads: usize| -> Result<[f64; 2]> {
        Ok([rust("data-parallel", 1, threads, ONE_DEVICE)?, python(threads)?])
    };
    let replicas = |method: &str| -> Result<[f64; 2]> {
        Ok([rust(method, 2, 1, REPLICAS)?, rust(method, 1, 1, REPLICAS)?])
    };

    let cores = report::cores();
    let (mut one_thread, mut all_cores) = (Sides::default(), Sides::default());
    let (mut data_parallel, mut custom_criterion) = (Sides::default(), Sides::default());
    for round in 1..=options.rounds.number {
        eprintln!("round {round}/{}", options.rounds.number);
        push(&mut one_thread, languages(1)?);
        push(&mut all_cores, languages(cores)?);
        push(&mut data_parallel, replicas("data-parallel")?);
        push(&mut custom_criterion, replicas("custom-criterion")?);
    }

    let mut table = Table::new(["Rust", "Python"]);
    table.row("one device, 1 thread", one_thread, MILLISECONDS, 1.0);
    table.row(&format!("one device, {cores} threads"), all_cores, MILLISECONDS, 1.0);
    println!("{table}");
    let mut table = Table::new(["2 replicas", "1 replica"]);
    table.row("data-parallel, 1 thread a replica", data_parallel, MILLISECONDS, 0.65);
    table.row("custom-criterion, 1 thread a replica", custom_criterion, MILLISECONDS, 0.65);
    println!("{table}");
    println!("{}", setting(options.rounds.number));
    Ok(())
}

/// Trains with so many threads for each device, and returns the median seconds of a step.
fn measure(
    mut program: Command,
    threads: usize,
    Training { batch, steps }: Training,
    folder: PathBuf,
) -> Result<f64> {
    let log = Log::new(folder)?;
    program.arg("--corpus").arg(workspace::root().join(CORPUS)).args(MODEL).arg(SEED);
    program.arg(format!("--batch-size={batch}")).arg(format!("--steps={steps}"));
    // An epoch has a step at least.
    program.arg(format!("--epochs={steps}")).arg("--metrics").arg(log.folder());
    log.run(program.env("OMP_NUM_THREADS", threads.to_string()))?;
    // Forward, loss, zero_grad and backward.
    log.read(0, |lines| job::median(lines, "step", "forward_backward_seconds", WARM_UP))
}

/// What was run, and on what.
fn setting(rounds: u32) -> String {
    format!(
        "Forward, loss, zero_grad and backward of a step; medians of {rounds} rounds in turns, the first {WARM_UP} steps of a run not counted.\n\
         BERT of codertimo's sizes (hidden 256, 8 layers, 8 heads, 20 tokens, dropout 0.1) with the vocabulary of {CORPUS}, libtorch 2.11.0.\n\
         Batch {} on one device against Python; {} in all on one replica or two, the copying between them included.\n\
         {}",
        ONE_DEVICE.batch,
        REPLICAS.batch,
        report::machine()
    )
}
