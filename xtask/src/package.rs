//! `cargo xtask package`: packages the published crates, and builds a small program and a copy of ddp-mnist from them.

use crate::checkout::{checkout, target_dir};
use crate::command;
use crate::files::{read, remove, write};
use crate::launch::LAUNCHER;
use crate::setup::{self, Level};
use crate::workspace::Workspace;
use anyhow::{Result, ensure};
use std::path::Path;
use std::process::Command;
use std::{env, fs};

/// Each after the ones that it depends on.
const LIBRARIES: [&str; 9] = [
    "find-libtorch",
    "c10d-sys",
    "tch-parallel-contract",
    "tch-parallel-base",
    "tch-parallel-data",
    "tch-parallel-nn",
    "tch-parallel-optim",
    "tch-parallel",
    "tch-parallel-report",
];
const VERSION: &str = env!("CARGO_PKG_VERSION");

const BUILD_SCRIPT: &str = "fn main() {\n    find_libtorch::link_program();\n}\n";
const PROGRAM: &str = include_str!("../../core/examples/readme.rs");
/// The trainer whose source needs nothing but what is published.
const COPIED: &str = "ddp-mnist";

fn packages() -> impl Iterator<Item = &'static str> {
    LIBRARIES.into_iter().chain([LAUNCHER])
}

/// Fails unless two ranks of the program train the same weights.
pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    setup::ensure(workspace, Level::for_this_machine())?;
    let target = target_dir()?;
    let mut package = command::cargo(checkout());
    // The build below compiles what is packaged. Only a real release needs a clean checkout.
    package.args(["package", "--quiet", "--no-verify", "--allow-dirty", "--target-dir"]);
    package.arg(&target).args(packages().flat_map(|name| ["--package", name]));
    command::run(&mut package)?;

    let folder = env::temp_dir().join("tch-parallel-package");
    remove(&folder)?;
    let tried = try_out(workspace, &target, &folder);
    tried.and(remove(&folder))
}

fn try_out(workspace: &Workspace, target: &Path, folder: &Path) -> Result<()> {
    let packages: Vec<_> = packages().map(|name| format!("{name}-{VERSION}")).collect();
    let manifest = read(&checkout().join("Cargo.toml"))?;
    write(&folder.join("Cargo.toml"), workspace_manifest(&manifest, &packages))?;
    write(&folder.join("program/Cargo.toml"), program_manifest(workspace.release.tch))?;
    write(&folder.join("program/build.rs"), BUILD_SCRIPT)?;
    write(&folder.join("program/src/main.rs"), PROGRAM)?;
    let mut copy = Command::new("cp");
    command::run_quietly(copy.arg("-r").arg(checkout().join(COPIED)).arg(folder))?;
    for package in packages {
        let file = target.join(format!("package/{package}.crate"));
        let mut unpack = Command::new("tar");
        command::run_quietly(unpack.arg("-xzf").arg(&file).arg("-C").arg(folder))?;
        println!("{package}: {} kB", fs::metadata(&file)?.len() / 1000);
    }
    let target = workspace.target.join("package/program");
    let cargo = || {
        let mut cargo = workspace.cargo();
        cargo.current_dir(folder).env("CARGO_TARGET_DIR", &target);
        cargo
    };
    let programs = ["--package=program", "--package", COPIED, "--package", LAUNCHER];
    command::run(cargo().args(["build", "--release"]).args(programs))?;
    let mut launch = Command::new(target.join("release/launch"));
    let said = command::output(launch.args(["-n", "2"]).arg(target.join("release/program")))?;
    print!("{said}");
    ensure!(same_weights(&said), "the two ranks do not print the same weights");

    // As docs.rs does.
    let mut document = cargo();
    document.env("LIBTORCH", folder.join("no-libtorch")).args(["doc", "--release", "--no-deps"]);
    document.args(LIBRARIES.iter().flat_map(|name| ["--package", name]));
    document.args(LIBRARIES.iter().map(|name| format!("--features={name}/doc-only")));
    command::run(document.arg("--features=tch-parallel/download,tch-parallel/images"))
}

/// The manifest of the checkout's workspace, with the unpacked packages in place of its folders and of a registry.
fn workspace_manifest(checkout: &str, packages: &[String]) -> String {
    let members = format!("members = [\"program\", \"{COPIED}\", \"{}\"]", packages.join("\", \""));
    let published = checkout.lines().filter_map(|line| match line.split_once("path = \"") {
        _ if line.starts_with("members") => Some(members.clone()),
        // Without a version, it is not published.
        Some((before, path)) => Some(before.to_owned() + path.split_once("\", ")?.1),
        None => Some(line.to_owned()),
    });
    let patches = LIBRARIES.iter().zip(packages);
    let patches = patches.map(|(name, folder)| format!("{name} = {{ path = \"{folder}\" }}"));
    let patches = ["[patch.crates-io]".to_owned()].into_iter().chain(patches);
    published.chain(patches).collect::<Vec<_>>().join("\n")
}

/// Like README's "A crate of your own".
fn program_manifest(tch: &str) -> String {
    format!(
        "[package]\nname = \"program\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\n\
         [dependencies]\ntch = \"{tch}\"\ntch-parallel = \"{VERSION}\"\n\n\
         [build-dependencies]\nfind-libtorch = \"{VERSION}\"\n"
    )
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
    fn what_is_published_loses_its_folder_and_the_rest_is_left_out() {
        let checkout = "[workspace]\nmembers = [\"core\"]\n\n\
            [workspace.dependencies]\ntch-parallel = { path = \"core\", version = \"0.1.0\" }\n\
            exhibit-kit = { path = \"exhibit-kit\" }\ntch = \"0.26\"\n";
        let manifest = workspace_manifest(checkout, &["find-libtorch-0.1.0".into()]);
        let expected = "[workspace]\nmembers = [\"program\", \"ddp-mnist\", \
            \"find-libtorch-0.1.0\"]\n\n[workspace.dependencies]\n\
            tch-parallel = { version = \"0.1.0\" }\ntch = \"0.26\"\n\
            [patch.crates-io]\nfind-libtorch = { path = \"find-libtorch-0.1.0\" }";
        assert_eq!(manifest, expected);
    }

    #[test]
    fn ranks_that_differ_or_are_missing_are_noticed() {
        assert!(same_weights("rank 1: 0.25\nrank 0: 0.25\n"));
        for wrong in ["rank 0: 0.25\nrank 1: 0.5\n", "rank 0: 0.25\n", ""] {
            assert!(!same_weights(wrong), "{wrong}");
        }
    }
}
