//! A node of a job: joins it, and starts and ends the ranks as the coordinator says.

mod link;

use crate::coordinator::listener::{self, Meeting};
use crate::coordinator::{Coordinator, alone};
use crate::supervisor::{Event, Supervisor, post};
use crate::{attempt::Attempt, prelude::*, rank::Rank};
use crate::{program, report, signals};
use crate::{protocol::handshake::Key, protocol::proof};
use link::Search;
use sha2::{Digest, Sha256};

/// Runs this node's part of the job, and its coordinator if this is node 0.
pub(crate) fn run(args: &Args, supervisor: &Supervisor<'_>) -> Result<ExitCode> {
    let node = describe(args)?;
    let mut agent = Agent { supervisor, link: None, is_coordinators: false };
    let events = supervisor.sender.clone();
    let coordinator = if args.several_nodes() {
        let key = Key::new(&args.rdzv_id);
        let (coordinator, port_is_taken) = match listener::open(args)? {
            Meeting::Here(at) => (Some(Coordinator::start(args, at, &key, &node)?), false),
            Meeting::Taken => (None, true),
            Meeting::Elsewhere => (None, false),
        };
        let own = coordinator.as_ref().map(|coordinator| coordinator.address);
        let (host, port) = (args.master_addr().to_owned(), args.meeting_port());
        let limit = args.rdzv_conf.join_timeout;
        link::start(Search { host, port, own, port_is_taken, limit, key, node }, events)?;
        coordinator
    } else {
        let answer = move |message| post(&events, Event::Told(message));
        agent.link = Some(alone::start(args, node, answer)?);
        None
    };
    let code = agent.follow();
    if let Err(error) = &code {
        // If the coordinator is lost too, its own nodes notice.
        agent.tell(ToCoordinator::Stopped { reason: format!("{error:#}"), code: 1 });
    }
    agent.tell(ToCoordinator::Gone);
    // Where two nodes are node 0, the job is that of the other one.
    if let Some(coordinator) = coordinator.filter(|_| agent.is_coordinators) {
        coordinator.finish()?;
    }
    code
}

fn describe(args: &Args) -> Result<Node> {
    let host = nix::unistd::gethostname().context("cannot find out the name of this host")?;
    // The only node has nobody to compare its program with.
    let is_compared = args.several_nodes() && args.rdzv_conf.check_program;
    let program = is_compared.then(|| digest(args)).transpose()?;
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
    /// Tells the coordinator something, once there is one.
    link: Option<Box<dyn Fn(ToCoordinator)>>,
    /// Whether that is the coordinator of this launcher.
    is_coordinators: bool,
}

impl Agent<'_> {
    /// Does what the coordinator says until the job is over. Returns the launcher's exit code.
    fn follow(&mut self) -> Result<ExitCode> {
        loop {
            match self.supervisor.next_event(None) {
                Some(Event::Joined { link, is_own }) => {
                    self.link = Some(Box::new(move |message| link.try_send(&message)));
                    self.is_coordinators = is_own;
                }
                Some(Event::Signal(signal)) => {
                    self.tell(signals::stopped_by(signal));
                    return Ok(ExitCode::from(signals::exit_code(signal)));
                }
                Some(Event::Told(ToAgent::Start { placement, master_port, waits })) => {
                    let tell = |message| self.tell(message);
                    let place = (placement, master_port);
                    let attempt = Attempt::run(self.supervisor, &tell, place, waits)?;
                    if let Some(code) = code(&attempt) {
                        return Ok(ExitCode::from(code));
                    }
                    self.tell(ToCoordinator::Gone);
                }
                Some(Event::Told(ToAgent::End(end))) => {
                    if let Some(code) = ended(&end, &[], true) {
                        return Ok(ExitCode::from(code));
                    }
                }
                Some(Event::Told(ToAgent::Done)) => return Ok(ExitCode::SUCCESS),
                _ => {}
            }
        }
    }

    fn tell(&self, message: ToCoordinator) {
        if let Some(link) = &self.link {
            link(message);
        }
    }
}

/// Says how the attempt has ended, and returns the launcher's exit code unless another one follows.
fn code(attempt: &Attempt<'_>) -> Option<u8> {
    let stopped = attempt.stopped_by.map(signals::exit_code);
    // What ends after a signal ends because of it.
    let Some(end) = attempt.end.as_ref().filter(|_| attempt.failed || stopped.is_none()) else {
        return Some(stopped.unwrap_or(0));
    };
    ended(end, &attempt.ranks, stopped.is_none())
}

/// Says how these ranks have ended, and returns the launcher's exit code unless others follow here.
fn ended(end: &End, ranks: &[Rank], goes_on: bool) -> Option<u8> {
    report::ended(end, ranks);
    let next = end.next.as_ref().filter(|_| goes_on);
    next.into_iter().for_each(say);
    next.is_none().then_some(end.code)
}
