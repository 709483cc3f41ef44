//! A node of a job of several nodes: joins it, and starts and ends the ranks as the coordinator says.

mod link;

use std::fs::File;
use std::process::ExitCode;

use anyhow::{Context, Result};
use sha2::{Digest, Sha256};

use crate::args::Args;
use crate::console::say;
use crate::coordinator::Coordinator;
use crate::coordinator::listener::{self, Meeting};
use crate::program;
use crate::protocol::connection::Outgoing;
use crate::protocol::handshake::Key;
use crate::protocol::{Node, ToAgent, ToCoordinator, proof};
use crate::signals;
use crate::supervisor::{Event, Supervisor};
use link::Search;

/// Runs this node's part of the job, and its coordinator if this is node 0.
pub(crate) fn run(args: &Args, supervisor: &Supervisor<'_>) -> Result<ExitCode> {
    let key = Key::new(&args.rdzv_id);
    let node = describe(args)?;
    let (coordinator, port_is_taken) = match listener::open(args)? {
        Meeting::Here(listener) => (Some(Coordinator::start(args, listener, &key, &node)?), false),
        Meeting::Taken => (None, true),
        Meeting::Elsewhere => (None, false),
    };
    let own = coordinator.as_ref().map(|coordinator| coordinator.address);
    let search = Search::new(args, key, node, own, port_is_taken);
    link::start(search, supervisor.sender())?;
    let mut agent = Agent { supervisor, link: None, is_coordinators: false };
    let code = agent.follow();
    let Some(link) = agent.link else { return code };
    if let Err(error) = &code {
        // If the coordinator is lost too, its own nodes notice.
        let _ = link.send(&ToCoordinator::Stopped { reason: format!("{error:#}"), code: 1 });
    }
    let _ = link.send(&ToCoordinator::Gone);
    // Where two nodes are node 0, the job is that of the other one.
    if let Some(coordinator) = coordinator.filter(|_| agent.is_coordinators) {
        coordinator.finish()?;
    }
    code
}

/// What this node brings to the job.
fn describe(args: &Args) -> Result<Node> {
    let host = nix::unistd::gethostname().context("cannot find out the name of this host")?;
    let program = args.rdzv_conf.check_program.then(|| digest(args)).transpose()?;
    Ok(Node {
        launcher: proof::nonce()?,
        host: host.to_string_lossy().into_owned(),
        node_rank: args.fixed_node_rank(),
        nodes: args.nnodes,
        ranks: args.nproc_per_node,
        max_restarts: args.max_restarts,
        role: args.role.clone(),
        program,
    })
}

/// The SHA-256 of the program's file.
fn digest(args: &Args) -> Result<String> {
    let path = program::find(&args.command[0])?;
    let mut hasher = Sha256::new();
    File::open(&path).and_then(|mut file| std::io::copy(&mut file, &mut hasher)).with_context(
        || format!("cannot read {} (--rdzv-conf check_program=0 skips that)", path.display()),
    )?;
    Ok(proof::hex(&hasher.finalize()))
}

struct Agent<'a> {
    supervisor: &'a Supervisor<'a>,
    /// The connection to the coordinator, once there is one.
    link: Option<Outgoing>,
    /// Whether that is the coordinator of this launcher.
    is_coordinators: bool,
}

impl Agent<'_> {
    /// Does what the coordinator says until the job is over. Returns the launcher's exit code.
    fn follow(&mut self) -> Result<ExitCode> {
        loop {
            match self.supervisor.next_event(None)? {
                Some(Event::Joined { link, is_own }) => {
                    (self.link, self.is_coordinators) = (Some(link), is_own);
                }
                Some(Event::Signal(signal)) => {
                    self.tell(&signals::stopped_by(signal));
                    return Ok(ExitCode::from(signals::exit_code(signal)));
                }
                Some(Event::Told(ToAgent::Start { placement, master_port })) => {
                    let attempt =
                        self.supervisor.run(&placement, master_port, self.link.as_ref())?;
                    match (attempt.stopped_by, attempt.end) {
                        (Some(signal), _) => {
                            return Ok(ExitCode::from(signals::exit_code(signal)));
                        }
                        (None, None) => return Ok(ExitCode::SUCCESS),
                        (None, Some(end)) if end.again => self.tell(&ToCoordinator::Gone),
                        (None, Some(end)) => return Ok(ExitCode::from(end.code)),
                    }
                }
                Some(Event::Told(ToAgent::End(end))) => {
                    say(&end.reason);
                    if !end.again {
                        return Ok(ExitCode::from(end.code));
                    }
                }
                Some(Event::Told(ToAgent::Done)) => return Ok(ExitCode::SUCCESS),
                _ => {}
            }
        }
    }

    fn tell(&self, message: &ToCoordinator) {
        if let Some(link) = &self.link {
            // The thread that listens to the coordinator notices its loss.
            let _ = link.send(message);
        }
    }
}
