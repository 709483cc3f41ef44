//! Starts the ranks, watches them, and ends them all when one fails or a signal arrives.

use std::rc::Rc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use nix::sys::signal::Signal;

use crate::args::Args;
use crate::console::say;
use crate::error_file::ErrorFiles;
use crate::guard::{self, Guard};
use crate::output::{Logs, Routes};
use crate::port::{self, MasterPort};
use crate::rank::{self, Rank};
use crate::report;
use crate::signals;

/// How long the other ranks have to notice a failure by themselves: their own messages, such as a
/// closed connection, explain more than a SIGTERM.
const NOTICE: Duration = Duration::from_secs(1);

/// How long a rank has to end after a signal.
const GRACE: Duration = Duration::from_secs(3);

// A failed job ends within 5 s.
const _: () = assert!(NOTICE.as_secs() + GRACE.as_secs() < 5);

/// What the launcher waits for.
enum Event {
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

/// How an attempt to run the ranks ended.
pub(crate) enum Outcome {
    /// Every rank ended with exit code 0.
    Succeeded,
    /// A rank failed.
    Failed {
        /// The launcher's exit code, from the rank at fault.
        code: u8,
        /// False if a signal has asked the launcher to end in the meantime.
        may_restart: bool,
    },
    /// A signal ended the job.
    Stopped(Signal),
}

/// The stages in which an attempt ends, and the deadlines for the next stage.
#[derive(Clone, Copy)]
enum Phase {
    Running,
    /// A rank has failed; the others have time to notice.
    Noticing(Instant),
    /// The ranks have got a signal to end.
    Ending(Instant),
    /// The ranks have been killed.
    Killed,
}

/// Runs a job on this node. It must stay on the main thread: the kernel sends the parent-death signal
/// when the thread that started a rank ends, not the process.
pub(crate) struct Supervisor<'a> {
    args: &'a Args,
    logs: Option<Logs>,
    error_files: ErrorFiles,
    guard: Rc<Guard>,
    sender: Sender<Event>,
    events: Receiver<Event>,
}

impl<'a> Supervisor<'a> {
    /// Prepares what all attempts share. Starts no rank yet.
    pub(crate) fn new(args: &'a Args) -> Result<Self> {
        port::check(args)?;
        let logs = Logs::create(args)?;
        let (sender, events) = channel();
        let signal_sender = sender.clone();
        signals::listen(move |signal| {
            // Fails only when the launcher is about to end anyway.
            let _ = signal_sender.send(Event::Signal(signal));
        })?;
        let error_files = ErrorFiles::new();
        let guard = Rc::new(Guard::start(error_files.directory())?);
        Ok(Supervisor { args, logs, error_files, guard, sender, events })
    }

    /// Starts the ranks, waits for all to end, and reports the one that failed first.
    pub(crate) fn run(&self, attempt: u32) -> Result<Outcome> {
        // Reserved until the attempt is over: rank 0 may open the port late.
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
        let mut command = guard::rank_command(&self.args.command);
        rank::set_variables(&mut command, self.args, attempt, local_rank, port);
        let routes = Routes::new(self.args, self.logs.as_ref(), attempt, local_rank)?;
        let sender = self.sender.clone();
        let on_end = move |at| {
            // Fails only when the launcher is about to end anyway.
            let _ = sender.send(Event::RankEnded { local_rank, at });
        };
        let error_file = self.error_files.of(attempt, local_rank);
        Rank::start(self.args.rank(local_rank), command, error_file, routes, &self.guard, on_end)
    }

    /// Waits until every rank has ended. Returns whether one failed before the launcher got a signal,
    /// and that signal.
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
                    say(format_args!("forwarding {signal} to the ranks"));
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

    /// The next event; `None` if the phase's deadline passes first.
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

/// Sends the signal to every rank. SIGCONT lets a stopped rank act on it.
fn ask_to_end(ranks: &[Rank], signal: Signal) {
    for rank in ranks {
        rank.signal(signal);
        rank.signal(Signal::SIGCONT);
    }
}

fn kill(ranks: &[Rank]) {
    ranks.iter().for_each(|rank| rank.signal(Signal::SIGKILL));
}
