//! `cargo xtask bench exchange`: what goes from rank to rank on this machine, through shared memory
//! compared with gloo's sockets, and what a second rank gains.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use super::job::{self, Log};
use super::mnist;
use super::report::{self, MICROSECONDS, MILLISECONDS, SECONDS, Sides, Table, push};
use crate::checkout::checkout;
use crate::launch::LAUNCHER;
use crate::workspace::Workspace;
use crate::{command, setup};

/// Measures one collective; see there.
const EXAMPLE: &str = "exchange";
const CORPUS: &str = "tests/data/pairs.txt";
/// The tensors that have a target, in bytes, out of those that the example exchanges.
const SIZES: [(&str, u64); 5] = [
    ("64 kB", 64 << 10),
    ("0.47 MB", 472 << 10),
    ("4 MiB", 4 << 20),
    ("26 MiB", 26 << 20),
    ("64 MiB", 64 << 20),
];
/// The size whose sum is compared with a copy.
const COPIED: u64 = SIZES[3].1;
/// A collective, its seconds, and how many times as fast as sockets shared memory must be, for 2 and
/// for 4 ranks.
type Collective = (&'static str, fn(&Times) -> f64, [f64; 2]);
const COLLECTIVES: [Collective; 3] = [
    ("all_reduce", |times| times.summed, [4.0, 6.0]),
    ("reduce_scatter", |times| times.reduced, [6.0; 2]),
    ("all_gather", |times| times.gathered, [8.0; 2]),
];
/// Steps at the start of a run that do not count.
const WARM_UP: usize = 2;

/// Which way tensors go from rank to rank.
#[derive(Clone, Copy)]
enum Way {
    SharedMemory,
    Sockets,
}

/// The seconds that the example prints for a number of bytes, in memory that the group has allocated,
/// where the Reducer's buckets lie.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Times {
    /// all_reduce.
    summed: f64,
    /// reduce_scatter.
    reduced: f64,
    /// all_gather.
    gathered: f64,
    /// Only copied, within one rank.
    copied: f64,
}

pub(super) fn run(workspace: &Workspace, options: &mnist::Options) -> Result<()> {
    let folder = workspace.target.join("bench/exchange");
    let venv = setup::ensure_python(workspace, setup::Level::Full)?;
    let raw = mnist::unpack(&options.data_dir, &workspace.target.join("bench"))?;
    let build = || {
        let mut cargo = workspace.cargo();
        cargo.args(["build", "--release"]);
        cargo
    };
    let packages = [LAUNCHER, "ddp-mnist", "ddp-imagenet", "dp-custom-criterion"];
    command::run(build().args(packages.iter().flat_map(|name| ["--package", name])))?;
    command::run(build().args(["--package", "tch-parallel", "--example", EXAMPLE]))?;

    let launch = |ranks: usize, way: Way, program: &Path| {
        let mut launch = Command::new(workspace.release_executable("launch"));
        launch
            .env("TCH_PARALLEL_SHARED_MEMORY", if matches!(way, Way::Sockets) { "0" } else { "1" });
        // One rank has as many threads as each of two.
        launch.env("OMP_NUM_THREADS", "1");
        launch.args(["-n", &ranks.to_string()]).arg(program);
        launch
    };
    let times = |ranks: usize, way: Way| {
        let example = workspace.release_executable("examples").join(EXAMPLE);
        let log = Log::new(folder.join("collectives"))?;
        log.run(&mut launch(ranks, way, &example))?;
        read_times(&fs::read_to_string(log.folder().join("printed.txt"))?)
    };
    let rust = |ranks: usize, way: Way| {
        let mut job = launch(ranks, way, &workspace.release_executable("ddp-mnist"));
        job.args(["--dataset", "fashion-mnist", "--device", "cpu", "--epochs", "2"]);
        job.args(["--batch-size", "128", "--no-save"]).arg("--data-dir").arg(&raw);
        training_loop(job, Log::new(folder.join("mnist"))?)
    };
    let python = |ranks: usize| {
        let mut job = Command::new(venv.executable("torchrun"));
        job.arg("--standalone").arg(format!("--nproc-per-node={ranks}"));
        job.arg(checkout().join(mnist::SCRIPT)).arg("--in-memory");
        job.arg("--data").arg(workspace.target.join("bench")).env("OMP_NUM_THREADS", "1");
        training_loop(job, Log::new(folder.join("python"))?)
    };
    let bert = |ranks: usize, way: Way| {
        let mut job = launch(ranks, way, &workspace.release_executable("dp-custom-criterion"));
        job.args(["--method", "ddp", "--hidden=256", "--layers=4", "--attn-heads=8"]);
        job.args(["--seq-len=20", "--seed=0", "--steps=20", "--epochs=20"]);
        job.args(["--batch-size=16", "--corpus"]).arg(checkout().join(CORPUS));
        step(job, Log::new(folder.join("bert"))?, "forward_backward_seconds")
    };
    let pyramidnet = |ranks: usize, way: Way| {
        let mut job = launch(ranks, way, &workspace.release_executable("ddp-imagenet"));
        job.args(["train-cifar", "--dataset", "synthetic", "--workers=0", "--method", "ddp"]);
        job.args(["--arch=pyramidnet20_a24", "--image-size=32", "--batch-size=32", "--steps=16"]);
        step(job, Log::new(folder.join("pyramidnet"))?, "batch_seconds")
    };

    let sides = || COLLECTIVES.map(|_| SIZES.map(|_| Sides::default()));
    let (mut pairs, mut fours) = (sides(), sides());
    let mut copies = Sides::default();
    let [mut shared, mut sockets, mut pythons] = [(); 3].map(|()| Sides::default());
    let [mut berts, mut pyramidnets] = [(); 2].map(|()| [Sides::default(), Sides::default()]);
    for round in 1..=options.rounds.number {
        eprintln!("round {round}/{}", options.rounds.number);
        for (ranks, figures) in [(2, &mut pairs), (4, &mut fours)] {
            let by_way = [times(ranks, Way::Sockets)?, times(ranks, Way::SharedMemory)?];
            for ((_, seconds, _), figures) in COLLECTIVES.iter().zip(figures) {
                for ((_, bytes), sides) in SIZES.iter().zip(figures) {
                    push(sides, by_way.each_ref().map(|times| seconds(&times[bytes])));
                }
            }
            if ranks == 2 {
                let times = by_way[1][&COPIED];
                push(&mut copies, [times.summed, times.copied]);
            }
        }
        let one = rust(1, Way::Sockets)?;
        push(&mut shared, [one, rust(2, Way::SharedMemory)?]);
        push(&mut sockets, [one, rust(2, Way::Sockets)?]);
        push(&mut pythons, [python(1)?, python(2)?]);
        for (sides, measure) in [
            (&mut berts, &bert as &dyn Fn(usize, Way) -> Result<f64>),
            (&mut pyramidnets, &pyramidnet),
        ] {
            let memory = measure(2, Way::SharedMemory)?;
            push(&mut sides[0], [memory, measure(2, Way::Sockets)?]);
            push(&mut sides[1], [memory, measure(1, Way::Sockets)?]);
        }
    }

    let mut table = Table::new(["sockets", "memory"]);
    for (i, (ranks, figures)) in [(2, pairs), (4, fours)].into_iter().enumerate() {
        for ((collective, _, targets), figures) in COLLECTIVES.iter().zip(figures) {
            for ((size, _), sides) in SIZES.iter().zip(figures) {
                let what = format!("{collective} of {size}, {ranks} ranks");
                table.row_at_least(&what, sides, MICROSECONDS, targets[i]);
            }
        }
    }
    println!("{table}");
    let mut table = Table::new(["all_reduce", "copy"]);
    table.row("26 MiB, 2 ranks, without a copy", copies, MILLISECONDS, 1.3);
    println!("{table}");
    let mut table = Table::new(["1 rank", "2 ranks"]);
    table.row_at_least("Fashion-MNIST, shared memory", shared, SECONDS, 1.6);
    table.row_without_target("Fashion-MNIST, sockets", sockets, SECONDS);
    table.row_without_target("Fashion-MNIST, Python", pythons, SECONDS);
    println!("{table}");
    let [bert_ways, bert_ranks] = berts;
    let [pyramidnet_ways, pyramidnet_ranks] = pyramidnets;
    let mut table = Table::new(["memory", "sockets"]);
    table.row("a step of BERT, 2 ranks", bert_ways, MILLISECONDS, 1.0);
    table.row("a step of PyramidNet, 2 ranks", pyramidnet_ways, MILLISECONDS, 1.0);
    println!("{table}");
    let mut table = Table::new(["2 ranks", "1 rank"]);
    table.row_without_target("a step of BERT", bert_ranks, MILLISECONDS);
    table.row_without_target("a step of PyramidNet", pyramidnet_ranks, MILLISECONDS);
    println!("{table}");
    println!("{}", setting(workspace, options.rounds.number));
    Ok(())
}

/// The rows of the example's table, by the number of bytes.
fn read_times(printed: &str) -> Result<HashMap<u64, Times>> {
    let rows = printed.lines().filter_map(|line| {
        let words: Vec<_> = line.split_whitespace().collect();
        let [bytes, _, _, ref rest @ ..] = words[..] else { return None };
        let [summed, _, reduced, _, gathered, _, copied, "ms"] = rest[..] else { return None };
        let seconds = |text: &str| text.parse::<f64>().ok().map(|ms| ms / 1e3);
        let [summed, reduced, gathered, copied] = [summed, reduced, gathered, copied].map(seconds);
        let (summed, reduced, gathered) = (summed?, reduced?, gathered?);
        let times = Times { summed, reduced, gathered, copied: copied? };
        Some((bytes.parse::<u64>().ok()?, times))
    });
    let rows: HashMap<_, _> = rows.collect();
    for (size, bytes) in SIZES {
        rows.get(&bytes).with_context(|| format!("no row of {size} in:\n{printed}"))?;
    }
    Ok(rows)
}

/// Seconds from the end of rank 0's first step to the end of its training, evaluation included.
fn training_loop(mut job: Command, log: Log) -> Result<f64> {
    log.run(job.arg("--metrics").arg(log.folder()))?;
    log.read(0, |lines| {
        let end = job::events(lines, "end").next().context("there is no \"event\":\"end\"")?;
        Ok(job::number(end, "end_unix_seconds")? - job::number(end, "first_step_unix_seconds")?)
    })
}

/// The median seconds of a step on rank 0.
fn step(mut job: Command, log: Log, key: &str) -> Result<f64> {
    log.run(job.arg("--metrics").arg(log.folder()))?;
    log.read(0, |lines| job::median(lines, "step", key, WARM_UP))
}

/// What was measured, and on which machine.
fn setting(workspace: &Workspace, rounds: u32) -> String {
    format!(
        "Medians of {rounds} alternating rounds, with one thread per rank.\n\
         Fashion-MNIST: from the first step to the end, batch size 128 per rank, data in memory; in Rust 2 epochs, in Python 1.\n\
         BERT: hidden 256, 4 layers, batch size 16; PyramidNet: pyramidnet20_a24, batch size 32, on all ranks together.\n\
         {}",
        report::machine(workspace.release)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_the_example_is_read() {
        let printed = "2 ranks, shared memory\n     bytes     all_reduce  allocated for it reduce_scatter \
            \x20    all_gather       copy\n\
            \x20    65536       0.013 ms          0.005 ms       0.006 ms       0.007 ms   0.002 ms\n\
            \x20   483328       0.030 ms          0.016 ms       0.015 ms       0.017 ms   0.011 ms\n\
            \x20  4194304       0.221 ms          0.126 ms       0.111 ms       0.053 ms   0.092 ms\n\
            \x20 67108864      10.414 ms          6.658 ms       5.047 ms       4.747 ms   9.506 ms\n";
        let error = read_times(printed).expect_err("a row is missing").to_string();
        assert!(error.starts_with("no row of 26 MiB in:\n2 ranks"), "{error}");
        let row = "27262976 13.891 ms 1.607 ms 2.250 ms 1.295 ms 3.827 ms\n";
        let times = read_times(&format!("{printed}{row}")).expect("all are there");
        let first = Times { summed: 5e-6, reduced: 6e-6, gathered: 7e-6, copied: 2e-6 };
        assert_eq!(times[&65536], first);
        assert_eq!(times[&COPIED].copied, 3.827e-3);
    }
}
