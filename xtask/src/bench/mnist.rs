//! `cargo xtask bench mnist`: ddp-mnist compared with a Python script that does the same job.

use super::report::SECONDS;
use super::*;
use crate::launch::LAUNCHER;
use std::time::UNIX_EPOCH;

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

/// Measures whole jobs (loading, training, evaluation), and steps alone with the data in memory.
pub(super) fn run(workspace: &Workspace, venv: &Venv, options: &Options) -> Result<()> {
    let folder = workspace.target.join("bench");
    let raw = unpack(&options.data_dir, &folder)?;
    let build = ["build", "--release", "--package", LAUNCHER, "--package", "ddp-mnist"];
    command::run(workspace.cargo().args(build))?;

    let rust = |name: &str, workers: &str| {
        let mut launch = Command::new(workspace.release_executable("launch"));
        launch.args(["-n", "2"]).arg(workspace.release_executable("ddp-mnist"));
        launch.args(["--dataset=fashion-mnist", "--device=cpu", "--epochs=1"]);
        launch.args(["--batch-size=128", "--no-save", "--workers", workers, "--data-dir"]);
        job(launch.arg(&raw), folder.join("runs").join(name))
    };
    let python = |name: &str, data: Option<&str>| {
        let mut torchrun = Command::new(venv.executable("torchrun"));
        torchrun.args(["--standalone", "--nproc-per-node=2"]).arg(checkout().join(SCRIPT));
        job(torchrun.arg("--data").arg(&folder).args(data), folder.join("runs").join(name))
    };
    let whole_jobs = || -> Result<[Run; 2]> { Ok([rust("rust", "2")?, python("python", None)?]) };
    // Without workers, nothing else runs during a step.
    let only_steps = || -> Result<[Run; 2]> {
        Ok([rust("rust-step", "0")?, python("python-step", Some("--in-memory"))?])
    };

    eprintln!("warming up");
    // They start with a cold page cache and do not count.
    whole_jobs()?;
    only_steps()?;
    let [jobs, steps] = options.rounds.run(|| Ok([whole_jobs()?, only_steps()?]))?;
    print!("{}", table(&jobs, &steps));
    println!(
        "Medians of {} alternating rounds. Fashion-MNIST (60,000 images), 2 ranks over gloo, 1 epoch, batch size 128.\n\
         Rust under launch, Python (torchvision, DataLoader with 2 workers) under torchrun.\n\
         Memory is that of the rank's own process, without Python's loader processes.",
        options.rounds.number
    );
    Ok(())
}

/// Unpacks the files to where torchvision looks for them, and returns their folder. Both sides read the unpacked files.
fn unpack(data: &Path, folder: &Path) -> Result<PathBuf> {
    let raw = folder.join("FashionMNIST/raw");
    make(&raw)?;
    for name in FILES {
        let plain = data.join(name);
        let source = if plain.exists() { plain } else { data.join(format!("{name}.gz")) };
        ensure!(
            source.exists(),
            "Fashion-MNIST is missing: there is no {name} or {name}.gz in {}; run `apt-get install dataset-fashion-mnist`, or set \
             --data-dir to the folder of its files",
            data.display()
        );
        let target = raw.join(name);
        let cannot = || format!("cannot create {}", target.display());
        let file = File::create(&target).with_context(cannot)?;
        // With -f, gzip copies what is not compressed.
        let mut gzip = Command::new("gzip");
        command::run_quietly(gzip.arg("-dcf").arg(&source).stdin(Stdio::null()).stdout(file))?;
    }
    Ok(raw)
}

/// Runs a job of two ranks to its end, and reads its metrics, which it writes to a new folder.
pub(super) fn job(launcher: &mut Command, folder: PathBuf) -> Result<Run> {
    let log = Log::new(folder)?;
    let (began, clock) = (UNIX_EPOCH.elapsed()?.as_secs_f64(), Instant::now());
    log.run(launcher.arg("--metrics").arg(&log.folder))?;
    let wall = clock.elapsed().as_secs_f64();
    let ends = [log.read(0, job::end)?, log.read(1, job::end)?];
    let worst = |figure: &str| -> Result<f64> {
        Ok(job::number(&ends[0], figure)?.max(job::number(&ends[1], figure)?))
    };
    Ok(Run {
        wall,
        first_step: worst("first_step_unix_seconds")? - began,
        peak_rss: worst("peak_rss_bytes")?,
        step: worst("step_seconds_median")?,
    })
}

fn table(jobs: &[[Run; 2]], steps: &[[Run; 2]]) -> Table {
    let of = |runs: &[[Run; 2]], figure: fn(&Run) -> f64| -> Sides {
        runs.iter().map(|sides| sides.each_ref().map(figure)).collect()
    };
    let mut table = Table::new(["Rust", "Python"]);
    table.row("the whole job", of(jobs, |run| run.wall), SECONDS, 0.2);
    table.row("from the start to the first step", of(jobs, |run| run.first_step), SECONDS, 0.15);
    table.row("peak memory of a rank", of(jobs, |run| run.peak_rss), MEGABYTES, 0.35);
    table.row("a training step, data in memory", of(steps, |run| run.step), MILLISECONDS, 1.0);
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_data_is_named_with_its_package() {
        let folder = tempfile::tempdir().unwrap();
        let error = unpack(Path::new("/nowhere"), folder.path()).unwrap_err().to_string();
        let missing = "no train-images-idx3-ubyte or train-images-idx3-ubyte.gz in /nowhere";
        assert!(error.contains(missing), "{error}");
        assert!(error.contains("apt-get install dataset-fashion-mnist"), "{error}");
    }

    #[test]
    fn steps_are_compared_by_the_runs_that_measure_only_steps() {
        let run = |wall, step| Run { wall, first_step: 0.2, peak_rss: 150e6, step };
        let jobs = [run(1.0, 9.0), run(2.0, 1.0)];
        let steps = [run(3.0, 0.001), run(1.0, 0.002)];
        let table = table(&[jobs], &[steps]).to_string();
        let words = table.lines().skip(1).flat_map(str::split_whitespace);
        let ratios: Vec<_> = words.filter(|word| word.ends_with('x')).collect();
        assert_eq!(ratios, ["0.50x", "1.00x", "1.00x", "0.50x"]);
    }
}
