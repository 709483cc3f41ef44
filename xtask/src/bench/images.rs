//! `cargo xtask bench images`: from JPEG files to augmented batches, in Rust and with torchvision.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use clap::Args;

use super::Rounds;
use super::job::{self, Log};
use super::report::{self, PER_SECOND, Sides, Table, push};
use crate::checkout::checkout;
use crate::workspace::Workspace;
use crate::{command, setup};

const PACKAGE: &str = "tch-parallel";
const EXAMPLE: &str = "image_pipeline";
const SCRIPT: &str = "xtask/bench/images_torchvision.py";
const MAKER: &str = "xtask/bench/make_jpegs.py";
const BATCH_SIZE: &str = "64";

#[derive(Args)]
pub(crate) struct Options {
    #[command(flatten)]
    rounds: Rounds,
    /// Use N JPEG files; they are made on first use.
    #[arg(long, value_name = "N", default_value_t = 2000, value_parser = clap::value_parser!(u32).range(1..))]
    images: u32,
    /// Number of loader threads in Rust and loader processes in Python [default: number of cores].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    workers: Option<u32>,
}

pub(super) fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    let folder = workspace.target.join("bench/images");
    let venv = setup::ensure_python(workspace, setup::Level::Full)?;
    let python = venv.executable("python");
    let images = make(&python, options.images, &folder)?;
    command::run(workspace.cargo().args([
        "build",
        "--release",
        "--package",
        PACKAGE,
        "--features",
        "images",
        "--example",
        EXAMPLE,
    ]))?;

    let workers = options.workers.map_or_else(report::cores, |workers| workers as usize);
    let measure = |mut program: Command, name: &str| {
        let log = Log::new(folder.join(name))?;
        program.arg(&images).args([&workers.to_string(), BATCH_SIZE]).arg(log.folder());
        log.run(&mut program)?;
        log.read(0, images_per_second)
    };
    let mut speeds = Sides::default();
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
        let example = Path::new("examples").join(EXAMPLE);
        let rust = Command::new(workspace.release_executable(example));
        let mut torchvision = Command::new(&python);
        torchvision.arg(checkout().join(SCRIPT));
        let speed = [measure(rust, "rust")?, measure(torchvision, "python")?];
        if round > 0 {
            push(&mut speeds, speed);
        }
    }

    let mut table = Table::new(["Rust", "Python"]);
    table.row_at_least(&format!("images, {workers} workers"), speeds, PER_SECOND, 2.0);
    print!("{table}");
    println!("{}", setting(workspace, options, &images)?);
    Ok(())
}

/// The folder of images, made if it does not exist yet.
fn make(python: &Path, images: u32, folder: &Path) -> Result<PathBuf> {
    let target = folder.join(format!("{images}-jpegs"));
    if !target.exists() {
        eprintln!("making {images} JPEG files in {}", target.display());
        std::fs::create_dir_all(folder)
            .with_context(|| format!("cannot create {}", folder.display()))?;
        let mut maker = Command::new(python);
        maker.arg(checkout().join(MAKER)).arg("--folder").arg(&target);
        command::run(maker.args(["--images", &images.to_string()]))?;
    }
    Ok(target)
}

fn images_per_second(lines: &str) -> Result<f64> {
    let end = job::events(lines, "end").next().context("there is no \"event\":\"end\"")?;
    job::number(end, "images_per_second")
}

/// What was measured, and on which machine.
fn setting(workspace: &Workspace, options: &Options, images: &Path) -> Result<String> {
    let mut bytes = 0;
    for class in std::fs::read_dir(images)? {
        for file in std::fs::read_dir(class?.path())? {
            bytes += file?.metadata()?.len();
        }
    }
    Ok(format!(
        "Medians of {} alternating rounds. {} JPEG files of about 500x375 pixels and {} kB: decoded, RandomResizedCrop(224),\n\
         RandomHorizontalFlip, normalised, batch size {BATCH_SIZE}. Python: torchvision's ImageFolder in a DataLoader.\n\
         {}",
        options.rounds.number,
        options.images,
        bytes / 1000 / u64::from(options.images),
        report::machine(workspace.release)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sides_end_with_their_speed() {
        let rust =
            r#"{"event":"end","rank":0,"world_size":1,"images":8,"images_per_second":812.5}"#;
        let python = r#"{"event": "end", "images": 8, "images_per_second": 312.25}"#;
        assert_eq!(images_per_second(rust).expect("it is there"), 812.5);
        assert_eq!(images_per_second(python).expect("it is there"), 312.25);
        images_per_second("").expect_err("nothing was measured");
    }
}
