//! One generation of ranks on this node, from their start until all have ended: because they succeed,
//! one fails, a signal arrives, or the coordinator of several nodes says so.

use std::time::{Duration, Instant};

use anyhow::Result;
use nix::sys::signal::Signal;

use crate::console::say;
use crate::output::SILENCE;
use crate::protocol::connection::Outgoing;
use crate::protocol::{End, ToAgent, ToCoordinator};
use crate::rank::Rank;
use crate::report::{self, Failure};
use crate::signals;
use crate::supervisor::{Event, GRACE, NOTICE, Supervisor};

/// On several nodes, how long after a failure each node tells again what its ranks have left. The
/// coordinator, which waits for `NOTICE`, must still get it.
const TELL: Duration = Duration::from_millis(600);

/// The stages in which ranks end, and the deadlines for the next stage.
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

/// The ranks of this node while they run.
pub(crate) struct Attempt<'a> {
    supervisor: &'a Supervisor<'a>,
    /// The connection to the coordinator of several nodes, which then decides about failures.
    coordinator: Option<&'a Outgoing>,
    phase: Phase,
    /// The ranks.
    pub(crate) ranks: Vec<Rank>,
    /// Whether one has failed before anything else has ended the attempt.
    pub(crate) failed: bool,
    /// The first signal that the launcher got.
    pub(crate) stopped_by: Option<Signal>,
    /// Why the coordinator ends the attempt.
    pub(crate) end: Option<End>,
    /// Whether the coordinator says that the job has succeeded.
    done: bool,
}

impl<'a> Attempt<'a> {
    /// Watches ranks that have been started.
    pub(crate) fn new(
        supervisor: &'a Supervisor<'a>,
        coordinator: Option<&'a Outgoing>,
        ranks: Vec<Rank>,
    ) -> Self {
        Attempt {
            supervisor,
            coordinator,
            phase: Phase::Running,
            ranks,
            failed: false,
            stopped_by: None,
            end: None,
            done: false,
        }
    }

    /// Waits until every rank has ended, and with several nodes, until it is known how the job goes on.
    pub(crate) fn watch(&mut self) -> Result<()> {
        while !self.is_over() {
            match self.supervisor.next_event(self.deadline())? {
                Some(Event::RankEnded { local_rank, at }) => self.rank_ended(local_rank, at)?,
                Some(Event::Signal(signal)) => self.stop(signal),
                // The first that ends the job names the culprit: the coordinator is gone after it.
                Some(Event::Told(ToAgent::End(end)))
                    if self.end.as_ref().is_none_or(|earlier| earlier.again) =>
                {
                    self.end_ranks();
                    say(&end.reason);
                    self.end = Some(end);
                }
                Some(Event::Told(ToAgent::Done)) => self.done = true,
                Some(Event::Told(ToAgent::Notice)) => {
                    if let Phase::Running = self.phase {
                        self.tell_reasons();
                        self.phase = Phase::Noticing(Instant::now() + TELL);
                    }
                }
                Some(Event::Told(_) | Event::Joined { .. }) => {}
                None => self.deadline_passed(),
            }
        }
        self.ranks.iter().for_each(|rank| rank.output.drain());
        Ok(())
    }

    fn is_over(&self) -> bool {
        let decided = self.done || self.end.is_some() || self.stopped_by.is_some();
        !self.ranks.iter().any(Rank::is_running) && (decided || self.coordinator.is_none())
    }

    fn deadline(&self) -> Option<Instant> {
        match self.phase {
            Phase::Running | Phase::Killed => None,
            Phase::Noticing(end) | Phase::Ending(end) => Some(end),
        }
    }

    fn rank_ended(&mut self, local_rank: u16, at: Instant) -> Result<()> {
        let rank = &mut self.ranks[usize::from(local_rank)];
        let success = rank.reap(at)?.status.success();
        let running = matches!(self.phase, Phase::Running | Phase::Noticing(_));
        match self.coordinator {
            Some(coordinator) if running && !success => {
                // Nobody may read the console, which must not hide the failure.
                rank.output.drain_for(SILENCE);
                tell(coordinator, Failure::of(rank, Instant::now()));
            }
            Some(coordinator) if running => {
                let succeeded = |rank: &Rank| rank.end.is_some_and(|end| end.status.success());
                if self.ranks.iter().all(succeeded) {
                    // The loss of the coordinator is noticed by the thread that listens to it.
                    let _ = coordinator.send(&ToCoordinator::Succeeded);
                }
            }
            None if matches!(self.phase, Phase::Running) && !success => {
                self.failed = true;
                self.phase = Phase::Noticing(Instant::now() + NOTICE);
            }
            _ => {}
        }
        Ok(())
    }

    fn stop(&mut self, signal: Signal) {
        if self.stopped_by.is_some() {
            if signal == Signal::SIGINT {
                self.kill();
            }
            return;
        }
        self.stopped_by = Some(signal);
        if let Some(coordinator) = self.coordinator {
            let _ = coordinator.send(&signals::stopped_by(signal));
        }
        ask_to_end(&self.ranks, signal);
        if let Phase::Running | Phase::Noticing(_) = self.phase {
            self.phase = Phase::Ending(Instant::now() + GRACE);
        }
        say(format_args!("forwarding {signal} to the ranks"));
    }

    fn deadline_passed(&mut self) {
        match (self.phase, self.coordinator) {
            (Phase::Noticing(_), Some(coordinator)) => {
                self.tell_reasons();
                // The loss of the coordinator is noticed by the thread that listens to it.
                let _ = coordinator.send(&ToCoordinator::Noticed);
                self.phase = Phase::Running;
            }
            (Phase::Noticing(_), None) => self.end_ranks(),
            _ => {
                self.kill();
                report::killed(&self.ranks, GRACE);
            }
        }
    }

    /// Tells what the ranks have left that still run: such a rank may wait until the others have
    /// learned its reason.
    fn tell_reasons(&self) {
        let Some(coordinator) = self.coordinator else { return };
        let running = self.ranks.iter().filter(|rank| rank.is_running());
        running.for_each(|rank| tell(coordinator, Failure::of(rank, Instant::now())));
    }

    fn end_ranks(&mut self) {
        if let Phase::Running | Phase::Noticing(_) = self.phase {
            ask_to_end(&self.ranks, Signal::SIGTERM);
            self.phase = Phase::Ending(Instant::now() + GRACE);
        }
    }

    fn kill(&mut self) {
        self.ranks.iter().for_each(|rank| rank.signal(Signal::SIGKILL));
        self.phase = Phase::Killed;
    }
}

fn tell(coordinator: &Outgoing, failure: Option<Failure>) {
    if let Some(failure) = failure {
        // The loss of the coordinator is noticed by the thread that listens to it.
        let _ = coordinator.send(&ToCoordinator::Failed(failure.shortened()));
    }
}

/// Sends the signal to every rank. SIGCONT lets a stopped rank act on it.
fn ask_to_end(ranks: &[Rank], signal: Signal) {
    for rank in ranks {
        rank.signal(signal);
        rank.signal(Signal::SIGCONT);
    }
}
