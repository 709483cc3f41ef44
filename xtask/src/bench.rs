//! `cargo xtask bench mnist`: the same job in Rust and in Python, in turns, on the same machine.
//!
//! A table is all that comes of it: a benchmark is no test, and a missed target no failure.

mod job;
mod report;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use clap::Args;

use crate::{command, setup, workspace};
use job::{Figures, Log};

/// Debian's package dataset-fashion-mnist.
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
    /// How often each side does the job; the medians are compared.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Folder of Fashion-MNIST's four IDX files, compressed (.gz) or not.
    #[arg(long, default_value = DEBIAN_DATA)]
    data_dir: PathBuf,
}

/// Measures whole jobs (loading, training, evaluation), then training steps alone with the data in memory.
pub(crate) fn mnist(options: &Options) -> Result<()> {
    let folder = workspace::target_dir()?.join("bench");
    let venv = setup::ensure_python(setup::Level::Bench)?;
    let raw = unpack(&options.data_dir, &folder)?;
    command::run(command::cargo().args([
        "build",
        "--release",
        "--package",
        "launch",
        "--package",
        "ddp-mnist",
    ]))?;

    let rust = |log: &Log, alone: bool| {
        let mut launch = Command::new(workspace::release_executable("launch".as_ref())?);
        launch.args(["-n", "2"]).arg(workspace::release_executable("ddp-mnist".as_ref())?);
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
        job::run(launch, log)
    };
    let python = |log: &Log, alone: bool| {
        let mut torchrun = Command::new(venv.executable("torchrun"));
        torchrun.args(["--standalone", "--nproc-per-node=2"]).arg(workspace::root().join(SCRIPT));
        torchrun
            .arg("--data")
            .arg(&folder)
            .arg("--metrics")
            .arg(log.folder())
            .args(alone.then_some("--in-memory"));
        job::run(torchrun, log)
    };

    let mut jobs = Figures::default();
    let mut steps = Figures::default();
    // The first round finds nothing in the page cache and is not counted.
    for round in 0..=options.rounds {
        eprintln!(
            "{}",
            if round == 0 {
                "warming up".to_owned()
            } else {
                format!("round {round}/{}", options.rounds)
            }
        );
        let log = |name: &str| Log::new(folder.join("runs").join(format!("{round}-{name}")));
        let job = (rust(&log("rust")?, false)?, python(&log("python")?, false)?);
        let step = (rust(&log("rust-step")?, true)?, python(&log("python-step")?, true)?);
        if round > 0 {
            jobs.push(job);
            steps.push(step);
        }
    }
    print!("{}", report::table(&jobs, &steps));
    println!("{}", report::setting(options.rounds));
    Ok(())
}

/// Unpacks the files to where torchvision looks for them; both sides read these. Returns their folder.
fn unpack(data: &Path, folder: &Path) -> Result<PathBuf> {
    let raw = folder.join("FashionMNIST/raw");
    fs::create_dir_all(&raw).with_context(|| format!("cannot create {}", raw.display()))?;
    for name in FILES {
        let (packed, plain) = (data.join(format!("{name}.gz")), data.join(name));
        ensure!(
            packed.exists() || plain.exists(),
            "Fashion-MNIST is missing: there is no {name} or {name}.gz in {}: `apt-get install dataset-fashion-mnist`, or name \
             the folder that holds it with --data-dir",
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

#[cfg(test)]
mod tests {
    use super::*;

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
}
