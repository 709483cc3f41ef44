//! A job of one node: no network, and this launcher decides by itself.

use std::process::ExitCode;

use anyhow::Result;

use crate::args::Args;
use crate::console::say;
use crate::port::{self, MasterPort};
use crate::protocol::Placement;
use crate::supervisor::Supervisor;
use crate::{report, signals};

/// Runs the job, with its restarts.
pub(crate) fn run(args: &Args, supervisor: &Supervisor<'_>) -> Result<ExitCode> {
    port::check(args)?;
    for restarts in 0.. {
        // Reserved until the attempt is over: rank 0 may open the port late.
        let port = MasterPort::choose(args)?;
        let placement = Placement::alone(args.nproc_per_node, restarts);
        let attempt = supervisor.run(&placement, port.number, None)?;
        match (attempt.failed, attempt.stopped_by) {
            (false, None) => break,
            (false, Some(signal)) => return Ok(ExitCode::from(signals::exit_code(signal))),
            (true, stopped_by) => {
                let code = report::failure(&attempt.ranks, port.reservation.is_some());
                if stopped_by.is_some() || restarts == args.max_restarts {
                    return Ok(ExitCode::from(code));
                }
            }
        }
        let (restart, of) = (restarts + 1, args.max_restarts);
        say(format_args!("restart {restart} of {of}: starting all ranks again"));
    }
    Ok(ExitCode::SUCCESS)
}
