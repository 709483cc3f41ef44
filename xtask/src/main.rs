//! The project's chores, as in cargo-xtask: `cargo xtask CHORE`. `cargo launch …` is short for
//! `cargo xtask launch …`.

mod bench;
mod book;
mod command;
mod launch;
mod lines;
mod setup;
mod test;
mod workspace;

use std::env;
use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, Parser, Subcommand};

/// The project's chores: set-up, launching, tests, the book, benchmarks.
#[derive(Parser)]
#[command(name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Subcommand)]
enum Chore {
    /// Install libtorch 2.11.0 in .libtorch. The other chores do this too if it is missing.
    Setup {
        /// Also download what the tests and CUDA need: PyTorch for Python, NCCL, CUDA's headers.
        /// Implied if there is a GPU.
        #[arg(long)]
        full: bool,
    },
    /// Build a program of the workspace and launch it: `cargo launch -n 2 ddp-mnist -- --epochs 3`.
    #[command(disable_help_flag = true)]
    Launch(Rest),
    /// Build all programs and run all tests. Passes arguments to `cargo test`.
    Test(Rest),
    /// Build the book into book/book.
    Book {
        /// Open it in a browser.
        #[arg(long)]
        open: bool,
    },
    /// Count the trainers' lines of code, without tests, comments and blank lines.
    Lines,
    /// Compare the speed of Rust and Python on this machine.
    Bench {
        #[command(subcommand)]
        benchmark: bench::Benchmark,
    },
}

/// Arguments for another command.
#[derive(Args)]
struct Rest {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    args: Vec<OsString>,
}

fn main() -> ExitCode {
    let chore = parse(&env::args_os().collect::<Vec<_>>()).unwrap_or_else(|error| error.exit());
    match run(chore) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            for cause in error.chain().skip(1) {
                eprintln!("  caused by: {cause}");
            }
            ExitCode::FAILURE
        }
    }
}

/// Reads the command line. clap swallows a `--` right after the chore's name, which is put back
/// because it is meant for the other command.
fn parse(line: &[OsString]) -> Result<Chore, clap::Error> {
    let mut chore = Cli::try_parse_from(line)?.chore;
    if let Chore::Launch(rest) | Chore::Test(rest) = &mut chore
        && line.get(2).is_some_and(|arg| arg == "--")
    {
        rest.args.insert(0, "--".into());
    }
    Ok(chore)
}

fn run(chore: Chore) -> Result<()> {
    match chore {
        Chore::Setup { full } => {
            setup::run(if full { setup::Level::Full } else { setup::Level::for_this_machine() })
        }
        Chore::Launch(rest) => launch::run(&rest.args),
        Chore::Test(rest) => test::run(&rest.args),
        Chore::Book { open } => book::run(open),
        Chore::Lines => lines::run(),
        Chore::Bench { benchmark } => bench::run(&benchmark),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rest(line: &[&str]) -> Vec<OsString> {
        let line: Vec<_> = [&["xtask"], line].concat().into_iter().map(OsString::from).collect();
        match parse(&line).expect("the line is valid") {
            Chore::Launch(rest) | Chore::Test(rest) => rest.args,
            _ => panic!("neither launch nor test"),
        }
    }

    #[test]
    fn arguments_of_another_command_pass_through_whole() {
        let cases: [&[&str]; 6] = [
            &["-n", "2", "ddp-mnist", "--", "--epochs", "3"],
            &["-n", "2", "--", "cargo", "run", "--", "--epochs", "3"],
            &["--", "cargo", "run"],
            &["-p", "tests", "--", "--nocapture"],
            &["--", "--nocapture"],
            &[],
        ];
        for case in cases {
            assert_eq!(rest(&[&["launch"], case].concat()), case);
            assert_eq!(rest(&[&["test"], case].concat()), case);
        }
        assert_eq!(rest(&["launch", "--help"]), ["--help"]);
    }
}
