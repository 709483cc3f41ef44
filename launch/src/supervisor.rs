//! Starts the ranks, watches them, and ends them all when one fails or a signal comes.

use std::rc::Rc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use nix::sys::signal::Signal;

use crate::args::Args;
use crate::env;
use crate::guard::Guard;
use crate::logs::Logs;
use crate::output::Routes;
use crate::port::{self, MasterPort};
use crate::rank::Rank;
use crate::report::{self, say};
use crate::shim;
use crate::signals;

/// How long the other ranks have to notice a failure by themselves: their own messages, such as a
/// closed connection, tell more than a SIGTERM.
const NOTICE: Duration = Duration::from_secs(1);

/// How long a rank has to end after a signal.
const GRACE: Duration = Duration::from_secs(3);

// Whoever waits for the end of a job waits less than 5 s.
const _: () = assert!(NOTICE.as_secs() + GRACE.as_secs() < 5);

/// What the launcher waits for.
pub(crate) enum Event {
    /// The process of a rank has ended.
    RankEnded {
        /// Which one.
        local_rank: u16,
        /// When.
        at: Instant,
    },
    /// The launcher was asked to end.
    Signal(Signal),
}

/// How an attempt to run all the ranks came out.
pub(crate) enum Outcome {
    /// Every rank ended with exit code 0.
    Succeeded,
    /// A rank failed.
    Failed {
        /// The exit code of the rank that failed first, for the launcher to end with.
        code: u8,
        /// Whether nobody has asked the launcher to end meanwhile.
        may_restart: bool,
    },
    /// A signal ended the job.
    Stopped(Signal),
}

/// How far the end of an attempt has come, and when it goes on without being asked.
#[derive(Clone, Copy)]
enum Phase {
    Running,
    /// A rank has failed; the others may notice.
    Noticing(Instant),
    /// The ranks have a signal to end.
    Ending(Instant),
    /// The ranks have been killed.
    Killed,
}

/// Runs a job on this node, from the thread that lives as long as the launcher: the kernel ties the
/// ranks' lives to the thread that starts them.
pub(crate) struct Supervisor<'a> {
    args: &'a Args,
    logs: Option<Logs>,
    guard: Rc<Guard>,
    sender: Sender<Event>,
    events: Receiver<Event>,
}

impl<'a> Supervisor<'a> {
    /// Prepares all that the attempts share. No rank is started yet.
    pub(crate) fn new(args: &'a Args) -> Result<Self> {
        port::check(args)?;
        let logs = Logs::create(args)?;
        let (sender, events) = channel();
        signals::listen(sender.clone())?;
        Ok(Supervisor { args, logs, guard: Rc::new(Guard::start()?), sender, events })
    }

    /// Starts the ranks, returns when all have ended, and reports the one that failed first.
    pub(crate) fn run(&self, attempt: u32) -> Result<Outcome> {
        // Kept until the attempt is over: rank 0 may open the port late.
        let port = MasterPort::choose(self.args)?;
        let ranks = 0..self.args.nproc_per_node;
        let ranks = ranks.map(|local_rank| self.start_rank(attempt, local_rank, port.number));
        let mut ranks: Vec<Rank> = ranks.collect::<Result<_>>()?;
        let (failed, stopped_by) = self.watch(&mut ranks)?;
        for rank in &ranks {
            rank.output.drain();
        }
        match (failed, stopped_by) {
            (false, None) => Ok(Outcome::Succeeded),
            (false, Some(signal)) => Ok(Outcome::Stopped(signal)),
            (true, _) => Ok(Outcome::Failed {
                code: report::failure(&ranks, port.reservation.is_some()),
                may_restart: stopped_by.is_none(),
            }),
        }
    }

    fn start_rank(&self, attempt: u32, local_rank: u16, port: u16) -> Result<Rank> {
        let mut command = shim::command(&self.args.command);
        env::set_rank(&mut command, self.args, attempt, local_rank, port);
        let routes = Routes::new(self.args, self.logs.as_ref(), attempt, local_rank)?;
        let sender = self.sender.clone();
        let on_end = move |at| {
            // Nobody listens any more when the launcher gives up.
            let _ = sender.send(Event::RankEnded { local_rank, at });
        };
        Rank::start(self.args.rank(local_rank), command, routes, &self.guard, on_end)
    }

    /// Waits until every rank has ended. Returns whether one failed before any signal came to the
    /// launcher, and that signal.
    fn watch(&self, ranks: &mut [Rank]) -> Result<(bool, Option<Signal>)> {
        let mut phase = Phase::Running;
        let mut failed = false;
        let mut stopped_by = None;
        while ranks.iter().any(Rank::is_running) {
            phase = match (self.next_event(phase)?, phase) {
                (Some(Event::RankEnded { local_rank, at }), _) => {
                    let end = ranks[usize::from(local_rank)].reap(at)?;
                    match phase {
                        Phase::Running if !end.status.success() => {
                            failed = true;
                            Phase::Noticing(Instant::now() + NOTICE)
                        }
                        _ => phase,
                    }
                }
                (Some(Event::Signal(Signal::SIGINT)), _) if stopped_by.is_some() => {
                    kill(ranks);
                    Phase::Killed
                }
                (Some(Event::Signal(_)), _) if stopped_by.is_some() => phase,
                (Some(Event::Signal(signal)), _) => {
                    stopped_by = Some(signal);
                    say(format_args!("{signal}: passed on to the ranks"));
                    ask_to_end(ranks, signal);
                    match phase {
                        Phase::Running | Phase::Noticing(_) => {
                            Phase::Ending(Instant::now() + GRACE)
                        }
                        Phase::Ending(_) | Phase::Killed => phase,
                    }
                }
                (None, Phase::Noticing(_)) => {
                    ask_to_end(ranks, Signal::SIGTERM);
                    Phase::Ending(Instant::now() + GRACE)
                }
                (None, _) => {
                    report::killed(ranks, GRACE);
                    kill(ranks);
                    Phase::Killed
                }
            };
        }
        Ok((failed, stopped_by))
    }

    /// The next event; `None` when the phase is over before one comes.
    fn next_event(&self, phase: Phase) -> Result<Option<Event>> {
        let event = match phase {
            Phase::Running | Phase::Killed => {
                self.events.recv().map_err(|_| RecvTimeoutError::Disconnected)
            }
            Phase::Noticing(end) | Phase::Ending(end) => {
                self.events.recv_timeout(end.saturating_duration_since(Instant::now()))
            }
        };
        match event {
            Ok(event) => Ok(Some(event)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => {
                bail!("the threads that watch the ranks are gone")
            }
        }
    }
}

/// Sends the signal to every rank. SIGCONT makes one that is stopped act on it.
fn ask_to_end(ranks: &[Rank], signal: Signal) {
    for rank in ranks {
        rank.signal(signal);
        rank.signal(Signal::SIGCONT);
    }
}

fn kill(ranks: &[Rank]) {
    ranks.iter().for_each(|rank| rank.signal(Signal::SIGKILL));
}
