//! `cargo xtask package`: packages the published crates, and builds programs from them as a user of crates.io would: a
//! small one, with each way to get libtorch that the README of tch-parallel names, and a copy of ddp-mnist.

use crate::{launch::LAUNCHER, prelude::*, setup};

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

/// Shows what a program needs in its manifest, and its build script.
const README: &str = include_str!("../../core/README.md");
const PROGRAM: &str = include_str!("../../core/examples/readme.rs");
/// The trainer whose source needs nothing but what is published.
const COPIED: &str = "ddp-mnist";

const CONFIG: &str = ".cargo/config.toml";
const DOWNLOAD: &str = "--features=tch-parallel/download-libtorch";

/// Fails unless two ranks of the program train the same weights, wherever its libtorch comes from.
pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    let venv = setup::ensure_python(workspace)?;
    let folder = env::temp_dir().join("tch-parallel-package");
    remove(&folder)?;
    make_registry(workspace, &folder)?;
    let path = format!("{}:{}", venv.executable("").display(), env::var("PATH")?);
    let tried = try_out(workspace, &folder, &path).and_then(|()| document(&folder));
    tried.and(remove(&folder))
}

/// Makes a folder with the packaged crates and all their dependencies, which cargo uses in place of crates.io.
fn make_registry(workspace: &Workspace, folder: &Path) -> Result<()> {
    let target = target_dir()?;
    let packages = || LIBRARIES.into_iter().chain([LAUNCHER]);
    let mut package = command::cargo(checkout());
    // What follows compiles what is packaged. Only a real release needs a clean checkout.
    package.args(["package", "--quiet", "--no-verify", "--allow-dirty", "--target-dir"]);
    package.arg(&target).args(packages().flat_map(|name| ["--package", name]));
    command::run(&mut package)?;

    let registry = folder.join("registry");
    command::output(workspace.cargo().args(["vendor", "--quiet"]).arg(&registry))?;
    for package in packages().map(|name| format!("{name}-{VERSION}")) {
        let file = target.join(format!("package/{package}.crate"));
        let mut unpack = Command::new("tar");
        command::run_quietly(unpack.arg("-xzf").arg(&file).arg("-C").arg(&registry))?;
        write(&registry.join(&package).join(".cargo-checksum.json"), "{\"files\": {}}")?;
        // Cargo.lock has checksums of these packages, which crates in a folder lack.
        remove(&registry.join(&package).join("Cargo.lock"))?;
        println!("{package}: {} kB", fs::metadata(&file)?.len() / 1000);
    }
    let source = format!("[source.packaged]\ndirectory = \"{}\"\n", registry.display());
    let replaced = "[source.crates-io]\nreplace-with = \"packaged\"\n\n";
    write(&folder.join(CONFIG), replaced.to_owned() + &source)
}

fn try_out(workspace: &Workspace, folder: &Path, path: &str) -> Result<()> {
    let programs = folder.join("programs");
    let manifest = read(&checkout().join("Cargo.toml"))?;
    write(&programs.join("Cargo.toml"), workspace_manifest(&manifest))?;
    write(&programs.join("program/Cargo.toml"), program_manifest(workspace.release.tch)?)?;
    write(&programs.join("program/build.rs"), block("rust\nfn main() {\n    find_libtorch")?)?;
    write(&programs.join("program/src/main.rs"), PROGRAM)?;
    let mut copy = Command::new("cp");
    command::run_quietly(copy.arg("-r").arg(checkout().join(COPIED)).arg(&programs))?;
    // `cargo install` ignores a project's configuration.
    let mut install = command::cargo(&programs);
    install.args(["install", LAUNCHER, "--root"]).arg(folder);
    install.arg("--config").arg(folder.join(CONFIG));
    command::run(&mut install)?;

    let libtorch = workspace.libtorch.display().to_string();
    let mut weights = Vec::new();
    for (variables, arguments) in [
        (&[("LIBTORCH", &*libtorch)][..], &["--package", COPIED][..]),
        (&[("LIBTORCH_USE_PYTORCH", "1"), ("PATH", path)], &[]),
        (&[], &[DOWNLOAD]),
    ] {
        let start = Instant::now();
        let target = folder.join("target");
        remove(&target)?;
        let build = || {
            let mut cargo = command::cargo(&programs);
            cargo.env_remove("LIBTORCH").env_remove("LIBTORCH_USE_PYTORCH").env_remove("CPATH");
            cargo.env("CARGO_TARGET_DIR", &target).envs(variables.iter().copied());
            cargo.args(["build", "--release", "--package=program"]).args(arguments);
            cargo
        };
        if arguments.contains(&DOWNLOAD) {
            pretend_download(&mut build(), &target, &workspace.libtorch)?;
        }
        command::run(&mut build())?;
        let mut launch = Command::new(folder.join("bin/launch"));
        let said = command::output(launch.args(["-n", "2"]).arg(target.join("release/program")))?;
        print!("{said}");
        let way = variables.first().map_or(DOWNLOAD, |(name, _)| name);
        println!("in {:.0?}, with {way}", start.elapsed());
        weights.extend(same_weights(&said).map(str::to_owned));
    }
    ensure!(
        weights.len() == 3 && weights.iter().all(|found| *found == weights[0]),
        "the ranks do not all print the same weights: {weights:?}"
    );
    Ok(())
}

/// Puts libtorch where torch-sys would download it. A first build shows where that is.
fn pretend_download(build: &mut Command, target: &Path, libtorch: &Path) -> Result<()> {
    build.arg("--package=torch-sys").output()?;
    for script in entries(&target.join("release/build"))? {
        let downloaded = script.join("out/libtorch/libtorch");
        if downloaded.parent().is_some_and(Path::exists) && !downloaded.exists() {
            symlink(libtorch, downloaded)?;
        }
    }
    Ok(())
}

/// As docs.rs does.
fn document(folder: &Path) -> Result<()> {
    for library in LIBRARIES {
        let mut document = command::cargo(&folder.join(format!("registry/{library}-{VERSION}")));
        document.env("LIBTORCH", folder.join("no-libtorch"));
        document.env("CARGO_TARGET_DIR", folder.join("doc"));
        document.args(["doc", "--release", "--no-deps", "--features"]).arg(match library {
            "tch-parallel-contract" => "",
            "tch-parallel" | "tch-parallel-data" => "doc-only,download,images",
            _ => "doc-only",
        });
        command::run(&mut document)?;
    }
    Ok(())
}

/// The manifest of the checkout's workspace, with a registry in place of its folders.
fn workspace_manifest(checkout: &str) -> String {
    let members = format!("members = [\"program\", \"{COPIED}\"]");
    let published = checkout.lines().filter_map(|line| match line.split_once("path = \"") {
        _ if line.starts_with("members") => Some(members.clone()),
        // Without a version, it is not published.
        Some((before, path)) => Some(before.to_owned() + path.split_once("\", ")?.1),
        None => Some(line.to_owned()),
    });
    published.collect::<Vec<_>>().join("\n")
}

fn program_manifest(tch: &str) -> Result<String> {
    let package = "[package]\nname = \"program\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\n";
    Ok(package.to_owned() + &block("toml")?.replace("\"0.26\"", &format!("\"{tch}\"")))
}

/// The README's block of code that begins like this.
fn block(begin: &str) -> Result<&'static str> {
    let block = README.split("```").find(|block| block.starts_with(begin));
    let lines = block.and_then(|block| block.split_once('\n'));
    Ok(lines.context("core/README.md no longer shows what a program needs")?.1)
}

/// What both ranks print after their names, if it is the same.
fn same_weights(said: &str) -> Option<&str> {
    let weights = |rank| said.lines().find_map(|line| line.strip_prefix(rank));
    weights("rank 0: ").filter(|weights_of_0| weights("rank 1: ") == Some(weights_of_0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_published_loses_its_folder_and_the_rest_is_left_out() {
        let checkout = "[workspace]\nmembers = [\"core\"]\n\n\
            [workspace.dependencies]\ntch-parallel = { path = \"core\", version = \"0.1.0\" }\n\
            exhibit-kit = { path = \"exhibit-kit\" }\ntch = \"0.26\"";
        let expected = "[workspace]\nmembers = [\"program\", \"ddp-mnist\"]\n\n\
            [workspace.dependencies]\ntch-parallel = { version = \"0.1.0\" }\ntch = \"0.26\"";
        assert_eq!(workspace_manifest(checkout), expected);
    }

    #[test]
    fn ranks_that_differ_or_are_missing_are_noticed() {
        assert_eq!(same_weights("rank 1: 0.25\nrank 0: 0.25\n"), Some("0.25"));
        for wrong in ["rank 0: 0.25\nrank 1: 0.5\n", "rank 0: 0.25\n", ""] {
            assert_eq!(same_weights(wrong), None, "{wrong}");
        }
    }
}
