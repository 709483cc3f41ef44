//! `cargo xtask bench imagenet`: training steps of ddp-imagenet's networks, against the same networks in Python.

use super::job::WARM_UP;
use super::*;

const PROGRAM: &str = "ddp-imagenet";
const SCRIPT: &str = "tests/python/imagenet_bench.py";

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

pub(super) fn run(workspace: &Workspace, venv: &Venv, rounds: &Rounds) -> Result<()> {
    let folder = workspace.target.join("bench/imagenet");
    command::run(workspace.cargo().args(["build", "--release", "--package", PROGRAM]))?;

    let measure = |mut program: Command, language: &str, network: &Network, threads: usize| {
        let Network { arch, image_size, batch, steps, .. } = network;
        let log = Log::new(folder.join(format!("{language}-{arch}-{threads}")))?;
        program.args([
            format!("--arch={arch}"),
            format!("--image-size={image_size}"),
            format!("--batch-size={batch}"),
            format!("--steps={steps}"),
        ]);
        program.arg("--metrics").arg(&log.folder);
        log.run(program.env("OMP_NUM_THREADS", threads.to_string()))?;
        log.read(0, |lines| job::median(lines, "batch_seconds"))
    };
    let rust = |network: &Network, threads: usize| {
        let mut program = Command::new(workspace.release_executable(PROGRAM));
        // Without workers, the images are made before the clock starts, and nothing else runs meanwhile.
        program.args(["train-cifar", "--dataset", "synthetic", "--workers", "0"]);
        measure(program, "rust", network, threads)
    };
    let python = |network: &Network, threads: usize| {
        let mut program = Command::new(venv.executable("python"));
        program.arg(checkout().join(SCRIPT));
        measure(program, "python", network, threads)
    };

    let cores = report::cores();
    let [small, large] = &NETWORKS;
    let rows = [(small, 1), (small, cores), (large, 1), (large, cores)];
    let figures = rounds.run(|| {
        let mut round = [[0.0; 2]; 4];
        for (sides, (network, threads)) in round.iter_mut().zip(rows) {
            *sides = [rust(network, threads)?, python(network, threads)?];
        }
        Ok(round)
    })?;

    let mut table = Table::new(["Rust", "Python"]);
    for ((network, threads), sides) in rows.into_iter().zip(figures) {
        let threads = if threads == 1 { "1 thread".into() } else { format!("{threads} threads") };
        table.row(&format!("{}, {threads}", network.name), sides, MILLISECONDS, 1.0);
    }
    println!("{table}");
    let networks = NETWORKS.map(|Network { name, arch, image_size, batch, .. }| {
        format!("{name}: {arch}, batch size {batch}, images of {image_size} x {image_size} pixels")
    });
    println!(
        "Forward, loss, zero_grad, backward and the step of SGD with momentum: medians of {} alternating rounds, without the first\n\
         {WARM_UP} steps of each run. The batch is in memory when the clock starts.\n\
         {}.",
        rounds.number,
        networks.join(".\n")
    );
    Ok(())
}
