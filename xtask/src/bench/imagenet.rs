//! `cargo xtask bench imagenet`: training steps of ddp-imagenet's networks, against the same networks in Python.

use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;
use clap::Args;

use super::Rounds;
use super::job::{self, Log};
use super::report::{self, MILLISECONDS, Sides, Table, push};
use crate::checkout::checkout;
use crate::workspace::Workspace;
use crate::{command, setup};

const PROGRAM: &str = "ddp-imagenet";
const SCRIPT: &str = "tests/python/imagenet_bench.py";

/// A network and how it is trained.
struct Network {
    name: &'static str,
    arch: &'static str,
    image_size: u64,
    batch: u64,
    steps: u64,
}

/// A PyramidNet small enough for a CPU, and ResNet-18 with images of ImageNet's size.
const NETWORKS: [Network; 2] = [
    Network { name: "PyramidNet", arch: "pyramidnet20_a24", image_size: 32, batch: 32, steps: 24 },
    Network { name: "ResNet-18", arch: "resnet18", image_size: 224, batch: 8, steps: 12 },
];

/// Steps at the start of a run that do not count: they allocate memory and start threads.
const WARM_UP: usize = 2;

#[derive(Args)]
pub(crate) struct Options {
    #[command(flatten)]
    rounds: Rounds,
}

pub(super) fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    let folder = workspace.target.join("bench/imagenet");
    let venv = setup::ensure_python(workspace, setup::Level::Full)?;
    command::run(workspace.cargo().args(["build", "--release", "--package", PROGRAM]))?;

    let rust = |network: &Network, threads: usize| {
        let mut program = Command::new(workspace.release_executable(PROGRAM));
        // Without workers, the training thread makes the images before the clock starts, and
        // nothing else runs meanwhile.
        program.args(["train-cifar", "--dataset", "synthetic", "--workers", "0"]);
        measure(program, network, threads, folder.join(format!("rust-{}-{threads}", network.arch)))
    };
    let python = |network: &Network, threads: usize| {
        let mut program = Command::new(venv.executable("python"));
        program.arg(checkout().join(SCRIPT));
        measure(
            program,
            network,
            threads,
            folder.join(format!("python-{}-{threads}", network.arch)),
        )
    };

    let cores = report::cores();
    let rows: Vec<_> =
        NETWORKS.iter().flat_map(|network| [(network, 1), (network, cores)]).collect();
    let mut figures: Vec<_> = rows.iter().map(|_| Sides::default()).collect();
    for round in 1..=options.rounds.number {
        eprintln!("round {round}/{}", options.rounds.number);
        for (&(network, threads), sides) in rows.iter().zip(&mut figures) {
            push(sides, [rust(network, threads)?, python(network, threads)?]);
        }
    }

    let mut table = Table::new(["Rust", "Python"]);
    for ((network, threads), sides) in rows.into_iter().zip(figures) {
        let threads = if threads == 1 { "1 thread".into() } else { format!("{threads} threads") };
        table.row(&format!("{}, {threads}", network.name), sides, MILLISECONDS, 1.0);
    }
    println!("{table}");
    println!("{}", setting(workspace, options.rounds.number));
    Ok(())
}

/// Trains with `threads` threads, and returns the median seconds per step.
fn measure(
    mut program: Command,
    network: &Network,
    threads: usize,
    folder: PathBuf,
) -> Result<f64> {
    let log = Log::new(folder)?;
    let Network { arch, image_size, batch, steps, .. } = network;
    program.args([
        format!("--arch={arch}"),
        format!("--image-size={image_size}"),
        format!("--batch-size={batch}"),
        format!("--steps={steps}"),
    ]);
    program.arg("--metrics").arg(log.folder());
    log.run(program.env("OMP_NUM_THREADS", threads.to_string()))?;
    log.read(0, |lines| job::median(lines, "step", "batch_seconds", WARM_UP))
}

/// What was measured, and on which machine.
fn setting(workspace: &Workspace, rounds: u32) -> String {
    let networks = NETWORKS.map(|Network { name, arch, image_size, batch, .. }| {
        format!("{name}: {arch}, batch size {batch}, images of {image_size} x {image_size} pixels")
    });
    format!(
        "Forward, loss, zero_grad, backward and the step of SGD with momentum: medians of {rounds} alternating rounds, without the first\n\
         {WARM_UP} steps of each run. The batch is in memory when the clock starts.\n\
         {}.\n\
         {}",
        networks.join(".\n"),
        report::machine(workspace.release)
    )
}
