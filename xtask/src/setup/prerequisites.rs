//! What the machine must already have. Errors name everything that is missing, with the command that installs it.

use super::{Level, Venv};
use crate::{prelude::*, workspace::ARM};

/// Checks all prerequisites, before anything is downloaded.
pub(super) fn check(venv: &Venv, level: Level) -> Result<()> {
    ensure!(
        cfg!(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))),
        "the set-up can only fetch libtorch for x86-64 and aarch64 Linux, and this is {} on {}: install libtorch {} yourself and set \
         LIBTORCH to the folder that holds its lib/ and include/",
        env::consts::ARCH,
        env::consts::OS,
        venv.release.torch
    );
    let compiler = if venv.is_for_arm { cross_compiler() } else { compiler(&compiler_name()) };
    let found = [python(Path::new("python3")), compiler];
    let missing = found.into_iter().filter_map(Result::err).map(|error| format!("{error:#}"));
    let missing: Vec<_> = missing.collect();
    ensure!(missing.is_empty(), "the set-up cannot start:\n  - {}", missing.join("\n  - "));
    disk_space(&venv.folder, level)
}

/// Checks for Python 3.10 or newer that can create virtual environments.
fn python(python: &Path) -> Result<()> {
    let run = |code: &str| command::output(Command::new(python).args(["-c", code]));
    let version = run("import sys; print(*sys.version_info[:2])")
        .context("python3 (3.10 or newer) is needed: `apt-get install python3 python3-venv`")?;
    let mut numbers = version.split_whitespace().map(|number| number.parse().unwrap_or(0));
    let (major, minor): (u32, u32) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    let old = format!("python3 is {major}.{minor}, and PyTorch needs 3.10 or newer");
    ensure!((major, minor) >= (3, 10), old);
    run("import venv, ensurepip")
        .context("python3 cannot make a virtual environment: `apt-get install python3-venv`")?;
    Ok(())
}

/// Checks for a compiler for [`ARM`], and has rustup install Rust's own library for it.
fn cross_compiler() -> Result<()> {
    let name = "aarch64-linux-gnu-g++";
    command::output(Command::new(name).arg("--version"))
        .with_context(|| format!("`{name}` is needed: `apt-get install g++-aarch64-linux-gnu`"))?;
    let needed = || format!("Rust's library for {ARM} is needed: `rustup target add {ARM}`");
    command::output(Command::new("rustup").args(["target", "add", ARM])).with_context(needed)?;
    Ok(())
}

/// The compiler that cargo's build scripts will call.
fn compiler_name() -> OsString {
    env::var_os("CXX").unwrap_or_else(|| "c++".into())
}

/// Checks for a compiler that supports C++17 and finds its standard library.
fn compiler(name: &OsString) -> Result<()> {
    let args = ["-std=c++17", "-fsyntax-only", "-x", "c++", "-include", "optional", "/dev/null"];
    let name = name.to_string_lossy();
    // Build scripts also take "ccache c++".
    let mut words = name.split_whitespace();
    let mut compiler = Command::new(words.next().unwrap_or_default());
    command::output(compiler.args(words).args(args)).with_context(|| {
        format!("a C++17 compiler is needed as `{name}`: `apt-get install g++`, or set CXX to the one that you have")
    })?;
    Ok(())
}

/// Fails only if the disk is known to be too full: `df` may be missing, or its output may be in an unknown format.
fn disk_space(folder: &Path, level: Level) -> Result<()> {
    let table = command::output(Command::new("df").arg("-Pk").arg(folder)).unwrap_or_default();
    let free: Option<u64> =
        table.lines().nth(1).and_then(|line| line.split_whitespace().nth(3)?.parse().ok());
    let (free, needed) = (free.unwrap_or(u64::MAX), level.kilobytes());
    ensure!(
        free >= needed,
        "the disk of {} has {} MB free, and the set-up needs {} MB while it runs",
        folder.display(),
        free / 1000,
        needed / 1000
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The error about a program that runs this script at every call.
    fn refused(script: &str, check: impl Fn(&Path) -> Result<()>) -> String {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("program");
        // Written by a separate shell. If this process held it open for writing, a child that another test starts at
        // that moment could inherit the descriptor, and Linux does not execute a file that is open for writing.
        let written = Command::new("sh")
            .args(["-c", r#"printf '#!/bin/sh\n%s\n' "$2" >"$1" && chmod 755 "$1""#, "sh"])
            .args([program.as_os_str(), script.as_ref()])
            .status();
        assert!(written.unwrap().success());
        format!("{:#}", check(&program).unwrap_err())
    }

    #[test]
    fn what_this_machine_has_is_accepted() {
        python(Path::new("python3")).unwrap();
        compiler(&compiler_name()).unwrap();
    }

    #[test]
    fn what_is_missing_is_named_with_its_package() {
        let found = format!("{:#}", python(Path::new("/nowhere/python3")).unwrap_err());
        assert!(found.contains("apt-get install python3 python3-venv"), "{found}");
        let found = compiler(&"/nowhere/c++".into()).unwrap_err().to_string();
        let expected = "a C++17 compiler is needed as `/nowhere/c++`: `apt-get install g++`";
        assert!(found.starts_with(expected), "{found}");
    }

    #[test]
    fn an_old_python_and_one_without_venv_are_refused() {
        let expected = "python3 is 3.9, and PyTorch needs 3.10 or newer";
        assert_eq!(refused("echo 3 9", python), expected);
        let script = "case \"$2\" in *ensurepip*) echo 'No module named ensurepip' >&2; exit 1;; *) echo 3 11;; esac";
        let found = refused(script, python);
        let expected = "python3 cannot make a virtual environment: `apt-get install python3-venv`";
        assert!(found.starts_with(expected), "{found}");
        assert!(found.ends_with("No module named ensurepip"), "{found}");
    }

    #[test]
    fn a_compiler_without_cpp17_is_refused() {
        let script = "echo \"unrecognized option '-std=c++17'\" >&2; exit 1";
        let found = refused(script, |path| compiler(&path.into()));
        assert!(found.ends_with("unrecognized option '-std=c++17'"), "{found}");
    }
}
