//! Building what the examination starts, and putting it into a folder.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::folder::{self, copy};
use crate::command;
use crate::files::write;
use crate::launch::LAUNCHER;
use crate::setup::{self, Level};
use crate::workspace::{Workspace, checkout};

/// Programs of the workspace, by the packages that they are in.
const PROGRAMS: [(&str, &str); 4] = [
    ("ddp-imagenet", "ddp-imagenet"),
    ("ddp-mnist", "ddp-mnist"),
    ("dp-custom-criterion", "dp-custom-criterion"),
    (LAUNCHER, "launch"),
];

/// Examples of these and of the library.
const EXAMPLES: [&str; 4] = ["amp", "models", "optimizers", "sync_batch_norm"];

/// What else the folder holds, by its path in the checkout and in the folder.
const FILES: [(&str, &str); 4] = [
    ("tests/gpu", ""),
    ("tests/python", "tests/python"),
    ("tests/data/pairs.txt", "tests/data/pairs.txt"),
    ("core/assets/mnist-10k", "core/assets/mnist-10k"),
];

/// The largest folder that is worth copying to a machine that is lent for minutes.
const LIMIT: u64 = 60 << 20;

/// Builds with the feature `cuda`, in a target folder of its own, and packs. Returns the number of
/// bytes.
pub(super) fn with_cuda(workspace: &Workspace, to: &Path) -> Result<u64> {
    setup::ensure(workspace, Level::Full)?;
    let target = workspace.target.join("cuda");
    let mut build = workspace.cargo();
    build.args(["build", "--release", "--bins", "--features", "cuda"]);
    build.args(PROGRAMS.iter().flat_map(|(package, _)| ["--package", package]));
    build.args(["--package", "tch-parallel"]);
    build.args(EXAMPLES.iter().flat_map(|name| ["--example", name]));
    command::run(build.env("CARGO_TARGET_DIR", &target))?;
    pack(workspace, &target.join("release"), true, to)
}

/// Packs the programs as they are. Returns the number of bytes.
pub(super) fn built_for_the_cpu(workspace: &Workspace, to: &Path) -> Result<u64> {
    pack(workspace, &workspace.target.join("release"), false, to)
}

fn pack(workspace: &Workspace, release: &Path, cuda: bool, to: &Path) -> Result<u64> {
    folder::make_anew(to)?;
    let torch = setup::version(&workspace.libtorch)?;
    write(&to.join(folder::MARK), format!("{{\"torch\": \"{torch}\", \"cuda\": {cuda}}}\n"))?;
    for (from, inside) in FILES {
        copy(&checkout().join(from), &to.join(inside))?;
    }
    let programs = PROGRAMS.iter().map(|(_, name)| (release.join(name), *name));
    let examples = EXAMPLES.iter().map(|name| (release.join("examples").join(name), *name));
    for (from, name) in programs.chain(examples) {
        strip(&from, &to.join("bin").join(name))?;
    }
    let bytes = folder::size(to)?;
    ensure!(
        bytes <= LIMIT,
        "{} has {bytes} bytes, but must have at most {LIMIT}: pack fewer programs",
        to.display()
    );
    Ok(bytes)
}

/// Copies a program without its symbols.
fn strip(from: &Path, to: &Path) -> Result<()> {
    ensure!(from.exists(), "{} is not built; run `cargo xtask test`", from.display());
    folder::make(to.parent().unwrap_or(to))?;
    let mut strip = Command::new("strip");
    command::run_quietly(strip.arg("-o").arg(to).arg(from)).context("install binutils")
}
