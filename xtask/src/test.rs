//! `cargo xtask test`: runs all tests, after building what they need.

use std::env;
use std::ffi::OsString;
use std::thread;
use std::time::Instant;

use anyhow::Result;

use crate::{command, setup};

/// The number of tests of a program that run at once.
const THREADS: &str = "RUST_TEST_THREADS";

/// Sets Python up, builds the programs that the tests start, and runs the tests.
pub(crate) fn run(args: &[OsString]) -> Result<()> {
    let start = Instant::now();
    setup::ensure(setup::Level::Full)?;
    command::run(command::cargo().args(["build", "--release", "--workspace"]))?;
    let mut test = command::cargo();
    // One run shows every failure.
    test.args(["test", "--release", "--no-fail-fast"])
        .args((!selects_package(args)).then_some("--workspace"))
        .args(args);
    if env::var_os(THREADS).is_none() {
        // One more than there are cores, because the tests' jobs spend part of their time waiting.
        test.env(THREADS, (thread::available_parallelism()?.get() + 1).to_string());
    }
    command::run(&mut test)?;
    let seconds = start.elapsed().as_secs();
    println!("all tests passed after {} min {} s", seconds / 60, seconds % 60);
    Ok(())
}

/// Whether the arguments say which packages to test; `--workspace` would override that.
fn selects_package(args: &[OsString]) -> bool {
    let of_cargo = args.iter().map(|arg| arg.to_string_lossy()).take_while(|arg| arg != "--");
    of_cargo.into_iter().any(|arg| arg.starts_with("-p") || arg.starts_with("--package"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_are_selected_by_cargos_own_flags_only() {
        for (line, expected) in [
            ("-p tests", true),
            ("--package=tests parity", true),
            ("parity", false),
            ("-- -p", false),
            ("", false),
        ] {
            let args: Vec<_> = line.split_whitespace().map(OsString::from).collect();
            assert_eq!(selects_package(&args), expected, "{line}");
        }
    }
}
