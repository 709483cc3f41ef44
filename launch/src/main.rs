//! `launch` starts the ranks of a distributed job on this machine, as torchrun does. It runs any
//! program: `launch -n 2 ./my-trainer --epochs 3`.
//!
//! The modules, from what the user sees down to the details:
//!
//! ```text
//! agent        a node of a job
//! coordinator  node 0's side of a job: decides when ranks start and end, and names the one at fault
//! attempt      watches the ranks of a node, and ends them when one fails
//! supervisor   starts them
//! report       what is said of their end
//! protocol     how the launchers of several nodes talk to each other
//! elastic      how a rank learns its place if ranks come and go
//! rank         one rank: its environment variables, its process, and why it has failed
//! failure      what a failure of a rank is
//! error_file   where a rank leaves the reason of its failure
//! output       where a rank's stdout and stderr go: console, log files, memory
//! guard        the helper processes that let no rank outlive the launcher
//! port         the port on which rank 0 listens
//! signals      signals to the launcher, and their exit codes
//! program      how the program is looked up
//! args         the command line: torchrun's flags
//! console      the launcher's own stdout and stderr
//! prelude      what most files use
//! ```

mod agent;
mod args;
mod attempt;
mod console;
mod coordinator;
mod elastic;
mod error_file;
mod failure;
mod guard;
mod output;
mod port;
mod prelude;
mod program;
mod protocol;
mod rank;
mod report;
mod signals;
mod supervisor;

use crate::{prelude::*, supervisor::Supervisor};

fn main() -> ExitCode {
    guard::help(std::env::args_os().skip(1)).unwrap_or_else(|| {
        run().unwrap_or_else(|error| {
            say(format_args!("{error:#}"));
            ExitCode::FAILURE
        })
    })
}

fn run() -> Result<ExitCode> {
    let args = Args::read(std::env::args_os()).unwrap_or_else(|error| error.exit());
    args.check()?;
    program::find(&args.command[0])?;
    // Before signals are caught, so that a signal ends the wait (but not in process 1 of a container).
    coordinator::listener::wait_for_name(&args)?;
    agent::run(&args, &Supervisor::new(&args)?)
}
