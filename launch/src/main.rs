//! `launch` starts the ranks of a distributed job on this machine, as torchrun does, for any
//! program: `launch -n 2 ./my-trainer --epochs 3`.

mod args;
mod env;
mod guard;
mod lines;
mod logs;
mod nproc;
mod output;
mod port;
mod program;
mod rank;
mod rendezvous;
mod report;
mod role;
mod shim;
mod signals;
mod streams;
mod supervisor;

use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;

use crate::args::Args;
use crate::report::say;
use crate::role::Role;
use crate::supervisor::{Outcome, Supervisor};

fn main() -> ExitCode {
    let mut words = std::env::args_os().skip(1);
    match words.next().and_then(Role::of) {
        Some(Role::Rank) => shim::become_program(words),
        Some(Role::Guard) => guard::watch_launcher(),
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
            Outcome::Stopped(signal) => return Ok(ExitCode::from(report::signal_code(signal))),
            Outcome::Failed { code, may_restart } => {
                if !may_restart || attempt == args.max_restarts {
                    return Ok(ExitCode::from(code));
                }
                let restart = attempt + 1;
                say(format_args!(
                    "restart {restart} of {}: every rank starts again",
                    args.max_restarts
                ));
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}
