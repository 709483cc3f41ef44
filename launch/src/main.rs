//! `launch` starts the ranks of a distributed job on this machine, as torchrun does. It runs any
//! program: `launch -n 2 ./my-trainer --epochs 3`.
//!
//! Each module uses only modules that stand below it:
//!
//! ```text
//! supervisor   starts the ranks, watches them, and ends them when one fails
//! report       names the rank at fault
//! rank         one rank: its environment variables and its process
//! error_file   where a rank leaves the reason of its failure
//! output       where a rank's stdout and stderr go: console, log files, memory
//! guard        the helper processes that let no rank outlive the launcher
//! port         the port on which rank 0 listens
//! signals      signals to the launcher, and their exit codes
//! program      how the program is looked up
//! args         the command line: torchrun's flags
//! console      the launcher's own stdout and stderr
//! ```

mod args;
mod console;
mod error_file;
mod guard;
mod output;
mod port;
mod program;
mod rank;
mod report;
mod signals;
mod supervisor;

use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;

use crate::args::Args;
use crate::console::say;
use crate::guard::Helper;
use crate::supervisor::{Outcome, Supervisor};

fn main() -> ExitCode {
    let mut words = std::env::args_os().skip(1);
    match words.next().and_then(Helper::of) {
        Some(helper) => helper.run(words),
        None => run(Args::parse()).unwrap_or_else(|error| {
            say(format_args!("{error:#}"));
            ExitCode::FAILURE
        }),
    }
}

fn run(args: Args) -> Result<ExitCode> {
    args.check()?;
    program::check(&args.command[0])?;
    let supervisor = Supervisor::new(&args)?;
    for attempt in 0.. {
        match supervisor.run(attempt)? {
            Outcome::Succeeded => break,
            Outcome::Stopped(signal) => return Ok(ExitCode::from(signals::exit_code(signal))),
            Outcome::Failed { code, may_restart } => {
                if !may_restart || attempt == args.max_restarts {
                    return Ok(ExitCode::from(code));
                }
                let restart = attempt + 1;
                say(format_args!(
                    "restart {restart} of {}: starting all ranks again",
                    args.max_restarts
                ));
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}
