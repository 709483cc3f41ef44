//! `cargo xtask bench data-parallel`: dp-custom-criterion's BERT, against Python's, and on two devices against one.

use super::job::WARM_UP;
use super::*;

const PROGRAM: &str = "dp-custom-criterion";
const SCRIPT: &str = "tests/python/bert.py";
const CORPUS: &str = "tests/data/pairs.txt";

/// The sizes of codertimo's BERT-pytorch, with the corpus's small vocabulary.
const MODEL: [&str; 5] =
    ["--hidden=256", "--layers=8", "--attn-heads=8", "--seq-len=20", "--dropout=0.1"];
/// With this seed, every batch has a loss: each contains a pair whose second sentence is the next one.
const SEED: &str = "--seed=0";

#[derive(Clone, Copy)]
struct Training {
    batch: u64,
    steps: u64,
}

/// Rust against Python. libtorch computes for both, and a large batch would hide the difference.
const ONE_DEVICE: Training = Training { batch: 8, steps: 32 };
/// One replica against two. The larger the batch, the less the copied weights matter; the corpus has 43 pairs.
const REPLICAS: Training = Training { batch: 32, steps: 16 };

pub(super) fn run(workspace: &Workspace, venv: &Venv, rounds: &Rounds) -> Result<()> {
    let folder = workspace.target.join("bench/data-parallel");
    command::run(workspace.cargo().args(["build", "--release", "--package", PROGRAM]))?;

    let rust = |method: &str, devices: usize, threads: usize, training: Training| {
        let mut program = Command::new(workspace.release_executable(PROGRAM));
        program.args(["--method", method, "--devices", &format!("{devices}xcpu")]);
        let log = format!("{method}-devices-{devices}-threads-{threads}-batch-{}", training.batch);
        measure(program, threads, training, folder.join(log))
    };
    let python = |threads: usize| {
        let mut program = Command::new(venv.executable("python"));
        program.arg(checkout().join(SCRIPT));
        measure(program, threads, ONE_DEVICE, folder.join(format!("python-threads-{threads}")))
    };
    let languages = |threads: usize| -> Result<[f64; 2]> {
        Ok([rust("data-parallel", 1, threads, ONE_DEVICE)?, python(threads)?])
    };
    let replicas = |method: &str| -> Result<[f64; 2]> {
        Ok([rust(method, 2, 1, REPLICAS)?, rust(method, 1, 1, REPLICAS)?])
    };

    let cores = report::cores();
    let [one_thread, all_cores, data_parallel, custom_criterion] = rounds.run(|| {
        let languages = [languages(1)?, languages(cores)?];
        Ok([languages[0], languages[1], replicas("data-parallel")?, replicas("custom-criterion")?])
    })?;

    let mut table = Table::new(["Rust", "Python"]);
    table.row("one device, 1 thread", one_thread, MILLISECONDS, 1.0);
    table.row(&format!("one device, {cores} threads"), all_cores, MILLISECONDS, 1.0);
    println!("{table}");
    let mut table = Table::new(["2 replicas", "1 replica"]);
    table.row("data-parallel, 1 thread a replica", data_parallel, MILLISECONDS, 0.65);
    table.row("custom-criterion, 1 thread a replica", custom_criterion, MILLISECONDS, 0.65);
    println!("{table}");
    println!(
        "Forward, loss, zero_grad and backward per step: medians of {} alternating rounds, without the first {WARM_UP} steps of each run.\n\
         BERT with codertimo's sizes (hidden 256, 8 layers, 8 heads, 20 tokens, dropout 0.1) with the vocabulary of {CORPUS}.\n\
         Batch size {} on one device against Python; {} in total on one or two replicas, copies between them included.",
        rounds.number, ONE_DEVICE.batch, REPLICAS.batch
    );
    Ok(())
}

/// Trains with `threads` threads per device, and returns the median seconds per step.
fn measure(
    mut program: Command,
    threads: usize,
    Training { batch, steps }: Training,
    folder: PathBuf,
) -> Result<f64> {
    let log = Log::new(folder)?;
    program.arg("--corpus").arg(checkout().join(CORPUS)).args(MODEL).arg(SEED);
    program.arg(format!("--batch-size={batch}")).arg(format!("--steps={steps}"));
    // As many epochs as steps are enough, since an epoch has at least one step.
    program.arg(format!("--epochs={steps}")).arg("--metrics").arg(&log.folder);
    log.run(program.env("OMP_NUM_THREADS", threads.to_string()))?;
    // Forward, loss, zero_grad and backward.
    log.read(0, |lines| job::median(lines, "forward_backward_seconds"))
}
