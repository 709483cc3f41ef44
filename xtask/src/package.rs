//! `cargo xtask package`: packages the crates that are published, and builds a program from the packages
//! as somebody else would.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::command;
use crate::launch::LAUNCHER;
use crate::setup::{self, Level};
use crate::workspace::{Workspace, checkout, target_dir};

/// Each after the ones that it depends on.
const PACKAGES: [&str; 4] = ["find-libtorch", "c10d-sys", "tch-parallel", LAUNCHER];
const VERSION: &str = env!("CARGO_PKG_VERSION");

const BUILD_SCRIPT: &str = "fn main() {\n    find_libtorch::link_program();\n}\n";
const PROGRAM: &str = include_str!("../../core/examples/readme.rs");

/// Fails unless two ranks of the program train the same weights.
pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    setup::ensure(workspace, Level::for_this_machine())?;
    let target = target_dir()?;
    let mut package = command::cargo(checkout());
    // What is packaged is compiled below. Only a release must be of a committed state.
    package
        .args(["package", "--quiet", "--no-verify", "--allow-dirty", "--target-dir"])
        .arg(&target);
    command::run(package.args(PACKAGES.iter().flat_map(|name| ["--package", name])))?;

    let folder = env::temp_dir().join("tch-parallel-package");
    fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let tried = try_out(workspace, &target, &folder);
    let removed = fs::remove_dir_all(&folder);
    tried.and(removed.with_context(|| format!("cannot remove {}", folder.display())))
}

fn try_out(workspace: &Workspace, target: &Path, folder: &Path) -> Result<()> {
    let packages = PACKAGES.map(|name| format!("{name}-{VERSION}"));
    write(&folder.join("Cargo.toml"), &workspace_manifest(&packages))?;
    write(&folder.join("program/Cargo.toml"), &program_manifest(workspace.release.tch))?;
    write(&folder.join("program/build.rs"), BUILD_SCRIPT)?;
    write(&folder.join("program/src/main.rs"), PROGRAM)?;
    for package in packages {
        let file = target.join(format!("package/{package}.crate"));
        let mut unpack = Command::new("tar");
        command::run_quietly(unpack.arg("-xzf").arg(&file).arg("-C").arg(folder))?;
        println!("{package}: {} kB", fs::metadata(&file)?.len() / 1000);
    }
    let target = workspace.target.join("package/program");
    let cargo = |libtorch: &Path| {
        let mut cargo = command::cargo(folder);
        cargo.env_remove("LIBTORCH_USE_PYTORCH");
        cargo.env("LIBTORCH", libtorch).env("CARGO_TARGET_DIR", &target);
        cargo
    };
    let mut build = cargo(&workspace.libtorch);
    command::run(build.args(["build", "--release", "--package=program", "--package", LAUNCHER]))?;
    let mut launch = Command::new(target.join("release/launch"));
    let said = command::output(launch.args(["-n", "2"]).arg(target.join("release/program")))?;
    print!("{said}");
    ensure!(same_weights(&said), "the two ranks do not print the same weights");

    // As docs.rs does.
    let mut document = cargo(&folder.join("no-libtorch"));
    document.args(["doc", "--release", "--no-deps"]);
    let libraries = &PACKAGES[..3];
    document.args(libraries.iter().flat_map(|name| ["--package", name]));
    document.args(libraries.iter().map(|name| format!("--features={name}/doc-only")));
    document.args(["--features=tch-parallel/download,tch-parallel/images"]);
    command::run(&mut document)
}

/// The packages, in place of those of a registry.
fn workspace_manifest(packages: &[String]) -> String {
    let patches = PACKAGES.iter().zip(packages);
    let patches = patches.map(|(name, folder)| format!("{name} = {{ path = \"{folder}\" }}\n"));
    format!(
        "[workspace]\nresolver = \"3\"\nmembers = [\"program\", \"{}\"]\n\n\
         [patch.crates-io]\n{}\n\
         [profile.release.package.torch-sys]\nopt-level = 0\n",
        packages.join("\", \""),
        patches.collect::<String>()
    )
}

/// Like README's "A crate of your own".
fn program_manifest(tch: &str) -> String {
    format!(
        "[package]\nname = \"program\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\n\
         [dependencies]\ntch = \"{tch}\"\ntch-parallel = \"{VERSION}\"\n\n\
         [build-dependencies]\nfind-libtorch = \"{VERSION}\"\n"
    )
}

fn write(path: &PathBuf, text: &str) -> Result<()> {
    let folder = path.parent().unwrap_or(path);
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// Whether ranks 0 and 1 print the same after their names.
fn same_weights(said: &str) -> bool {
    let weights = |rank| said.lines().find_map(|line| line.strip_prefix(rank));
    weights("rank 0: ").is_some() && weights("rank 0: ") == weights("rank 1: ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_that_differ_or_are_missing_are_noticed() {
        assert!(same_weights("rank 1: 0.25\nrank 0: 0.25\n"));
        for wrong in ["rank 0: 0.25\nrank 1: 0.5\n", "rank 0: 0.25\n", ""] {
            assert!(!same_weights(wrong), "{wrong}");
        }
    }
}
