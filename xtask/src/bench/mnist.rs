//! `cargo xtask bench mnist`: ddp-mnist compared with a Python script that does the same job.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use clap::Args;

use super::Rounds;
use super::job::{self, Log};
use super::report::{self, MEGABYTES, MILLISECONDS, SECONDS, Sides, Table, push};
use crate::checkout::checkout;
use crate::launch::LAUNCHER;
use crate::workspace::Workspace;
use crate::{command, setup};

/// Where Debian's package dataset-fashion-mnist installs its files.
const DEBIAN_DATA: &str = "/usr/share/datasets/fashion-mnist";
const FILES: [&str; 4] = [
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
];
const SCRIPT: &str = "xtask/bench/mnist_torchvision.py";

#[derive(Args)]
pub(crate) struct Options {
    #[command(flatten)]
    rounds: Rounds,
    /// Folder of Fashion-MNIST's four IDX files, gzipped or not.
    #[arg(long, default_value = DEBIAN_DATA)]
    data_dir: PathBuf,
}

/// The time and memory that one run took.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Run {
    /// Seconds from the launcher's start to its end.
    wall: f64,
    /// Seconds from the launcher's start until every rank has done its first step.
    first_step: f64,
    /// Peak resident memory in bytes, of the rank that used the most.
    pub(super) peak_rss: f64,
    /// Median seconds per training step, of the slower rank.
    pub(super) step: f64,
}

/// Measures whole jobs (loading, training, evaluation), then training steps alone with the data in memory.
pub(super) fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    let folder = workspace.target.join("bench");
    let venv = setup::ensure_python(workspace, setup::Level::Full)?;
    let raw = unpack(&options.data_dir, &folder)?;
    command::run(workspace.cargo().args([
        "build",
        "--release",
        "--package",
        LAUNCHER,
        "--package",
        "ddp-mnist",
    ]))?;

    let rust = |log: &Log, alone: bool| {
        let mut launch = Command::new(workspace.release_executable("launch"));
        launch.args(["-n", "2"]).arg(workspace.release_executable("ddp-mnist"));
        launch.args([
            "--dataset",
            "fashion-mnist",
            "--device",
            "cpu",
            "--epochs",
            "1",
            "--batch-size",
            "128",
            "--no-save",
        ]);
        launch.arg("--data-dir").arg(&raw).arg("--metrics").arg(log.folder());
        // Without workers, nothing else runs during a step.
        launch.args(["--workers", if alone { "0" } else { "2" }]);
        job(launch, log)
    };
    let python = |log: &Log, alone: bool| {
        let mut torchrun = Command::new(venv.executable("torchrun"));
        torchrun.args(["--standalone", "--nproc-per-node=2"]).arg(checkout().join(SCRIPT));
        torchrun
            .arg("--data")
            .arg(&folder)
            .arg("--metrics")
            .arg(log.folder())
            .args(alone.then_some("--in-memory"));
        job(torchrun, log)
    };

    let mut jobs = Sides::default();
    let mut steps = Sides::default();
    // The first round starts with a cold page cache and does not count.
    for round in 0..=options.rounds.number {
        eprintln!(
            "{}",
            if round == 0 {
                "warming up".to_owned()
            } else {
                format!("round {round}/{}", options.rounds.number)
            }
        );
        let log = |name: &str| Log::new(folder.join("runs").join(format!("{round}-{name}")));
        let job = [rust(&log("rust")?, false)?, python(&log("python")?, false)?];
        let step = [rust(&log("rust-step")?, true)?, python(&log("python-step")?, true)?];
        if round > 0 {
            push(&mut jobs, job);
            push(&mut steps, step);
        }
    }
    print!("{}", table(&jobs, &steps));
    println!("{}", setting(workspace, options.rounds.number));
    Ok(())
}

/// Unpacks the files to where torchvision looks for them, and returns their folder. Both sides read
/// the unpacked files.
fn unpack(data: &Path, folder: &Path) -> Result<PathBuf> {
    let raw = folder.join("FashionMNIST/raw");
    fs::create_dir_all(&raw).with_context(|| format!("cannot create {}", raw.display()))?;
    for name in FILES {
        let (packed, plain) = (data.join(format!("{name}.gz")), data.join(name));
        ensure!(
            packed.exists() || plain.exists(),
            "Fashion-MNIST is missing: there is no {name} or {name}.gz in {}; run `apt-get install dataset-fashion-mnist`, or set \
             --data-dir to the folder of its files",
            data.display()
        );
        let target = raw.join(name);
        if plain.exists() {
            fs::copy(&plain, &target)
                .with_context(|| format!("cannot copy {}", plain.display()))?;
        } else {
            let file = fs::File::create(&target)
                .with_context(|| format!("cannot create {}", target.display()))?;
            command::run_quietly(
                Command::new("gzip").arg("-dc").arg(&packed).stdin(Stdio::null()).stdout(file),
            )?;
        }
    }
    Ok(raw)
}

/// Runs a job of two ranks to its end.
pub(super) fn job(mut launcher: Command, log: &Log) -> Result<Run> {
    let span = log.run(&mut launcher)?;
    let ranks = (0..2).map(|rank| log.read(rank, read_rank)).collect::<Result<Vec<_>>>()?;
    let worst = |figure: fn(&Rank) -> f64| ranks.iter().map(figure).fold(0.0, f64::max);
    Ok(Run {
        wall: span.took.as_secs_f64(),
        first_step: worst(|rank| rank.first_step_ended) - span.began.as_secs_f64(),
        peak_rss: worst(|rank| rank.peak_rss),
        step: worst(|rank| rank.step),
    })
}

/// The figures that one rank writes when it ends.
#[derive(Debug, PartialEq)]
struct Rank {
    /// Seconds since 1970.
    first_step_ended: f64,
    /// Bytes.
    peak_rss: f64,
    /// Median seconds.
    step: f64,
}

fn read_rank(lines: &str) -> Result<Rank> {
    let end = job::events(lines, "end").next().context("there is no \"event\":\"end\"")?;
    Ok(Rank {
        first_step_ended: job::number(end, "first_step_unix_seconds")?,
        peak_rss: job::number(end, "peak_rss_bytes")?,
        step: job::number(end, "step_seconds_median")?,
    })
}

fn table(jobs: &Sides<Run>, steps: &Sides<Run>) -> Table {
    let of = |runs: &Sides<Run>, figure: fn(&Run) -> f64| {
        runs.each_ref().map(|side| side.iter().map(figure).collect())
    };
    let mut table = Table::new(["Rust", "Python"]);
    table.row("the whole job", of(jobs, |run| run.wall), SECONDS, 0.2);
    table.row("from the start to the first step", of(jobs, |run| run.first_step), SECONDS, 0.15);
    table.row("peak memory of a rank", of(jobs, |run| run.peak_rss), MEGABYTES, 0.35);
    table.row("a training step, data in memory", of(steps, |run| run.step), MILLISECONDS, 1.0);
    table
}

/// What was measured, and on which machine.
fn setting(workspace: &Workspace, rounds: u32) -> String {
    format!(
        "Medians of {rounds} alternating rounds. Fashion-MNIST (60,000 images), 2 ranks over gloo, 1 epoch, batch size 128.\n\
         Rust under launch, Python (torchvision, DataLoader with 2 workers) under torchrun.\n\
         Memory is that of the rank's own process, without Python's loader processes.\n\
         {}",
        report::machine(workspace.release)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINES: &str = r#"{"event":"step","rank":0,"world_size":2,"epoch":0,"step":0,"loss":2.3}
{"event":"epoch","rank":0,"world_size":2,"epoch":0,"train_loss":0.9}
{"event":"end","rank":0,"first_step_unix_seconds":101.25,"step_seconds_median":0.0011,"peak_rss_bytes":150000000}
"#;

    #[test]
    fn a_rank_is_read_from_its_end() {
        let rank = Rank { first_step_ended: 101.25, peak_rss: 150e6, step: 0.0011 };
        assert_eq!(read_rank(LINES).expect("all is there"), rank);
    }

    #[test]
    fn a_job_that_did_not_end_is_an_error() {
        let cut_off = &LINES[..LINES.find("{\"event\":\"end\"").expect("it is there")];
        assert_eq!(
            read_rank(cut_off).expect_err("it has no end").to_string(),
            "there is no \"event\":\"end\""
        );
    }

    #[test]
    fn missing_data_is_named_with_its_package() {
        let folder = std::env::temp_dir().join(format!("xtask-bench-{}", std::process::id()));
        let error = unpack(Path::new("/nowhere"), &folder).expect_err("there is no data");
        fs::remove_dir_all(&folder).expect("the folder goes");
        let message = error.to_string();
        assert!(
            message
                .contains("no train-images-idx3-ubyte or train-images-idx3-ubyte.gz in /nowhere"),
            "{message}"
        );
        assert!(message.contains("apt-get install dataset-fashion-mnist"), "{message}");
    }

    #[test]
    fn steps_are_compared_by_the_runs_that_measure_only_steps() {
        let run = |wall, step| Run { wall, first_step: 0.2, peak_rss: 150e6, step };
        let jobs = [vec![run(1.0, 9.0)], vec![run(2.0, 1.0)]];
        let steps = [vec![run(3.0, 0.001)], vec![run(1.0, 0.002)]];
        let table = table(&jobs, &steps).to_string();
        let ratios = table.lines().skip(1).filter_map(|row| {
            row.split_whitespace().find(|word| word.ends_with('x')).map(str::to_owned)
        });
        assert_eq!(ratios.collect::<Vec<_>>(), ["0.50x", "1.00x", "1.00x", "0.50x"]);
    }
}
