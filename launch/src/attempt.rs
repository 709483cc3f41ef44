//! One generation of ranks on this node, from their start until all have ended, for whatever reason.

mod regrouping;
pub(crate) mod seats;

use crate::supervisor::{Event, Supervisor};
use crate::{prelude::*, rank::Rank, report, signals};
use seats::Seats;
use tch_parallel_contract::NOTICE;

/// The stages in which ranks end, and the deadlines for the next stage.
#[derive(Clone, Copy)]
enum Phase {
    Running,
    /// A rank has failed, here or elsewhere; the others have time to notice.
    Noticing(Instant),
    /// The ranks have got a signal to end.
    Ending(Instant),
    Killed,
}

pub(crate) struct Attempt<'a> {
    supervisor: &'a Supervisor<'a>,
    tell: &'a dyn Fn(ToCoordinator),
    /// The place of this node in the current generation.
    placement: Placement,
    /// The one with all ranks, where those that replace others start.
    whole: Placement,
    master_port: u16,
    seats: Seats,
    phase: Phase,
    pub(crate) ranks: Vec<Rank>,
    /// Whether one has failed before anything else has ended the attempt.
    pub(crate) failed: bool,
    /// Whether ranks are no longer replaced: all have finished, or one has exited with code 0 before.
    is_settled: bool,
    pub(crate) stopped_by: Option<Signal>,
    pub(crate) end: Option<End>,
    /// Whether the coordinator says that the job has succeeded.
    done: bool,
}

impl<'a> Attempt<'a> {
    /// Starts the ranks, and watches them until every one has ended, and it is known how the job goes on.
    pub(crate) fn run(
        supervisor: &'a Supervisor<'a>,
        tell: &'a dyn Fn(ToCoordinator),
        (placement, master_port): (Placement, u16),
        waits: bool,
    ) -> Result<Self> {
        let ranks = supervisor.start(&placement, master_port)?;
        let mut attempt = Attempt {
            supervisor,
            tell,
            whole: placement.clone(),
            placement,
            master_port,
            seats: Seats::new(ranks.len() as u16, !waits),
            phase: Phase::Running,
            ranks,
            failed: false,
            is_settled: false,
            stopped_by: None,
            end: None,
            done: false,
        };
        while !attempt.is_over() {
            match supervisor.next_event(attempt.deadline()) {
                Some(Event::RankEnded { local_rank, at }) => attempt.rank_ended(local_rank, at)?,
                Some(Event::Signal(signal)) => attempt.stop(signal),
                Some(Event::Told(message)) => attempt.hear(message)?,
                Some(Event::Elastic { local_rank, started_in, said }) => {
                    attempt.hear_rank(local_rank, started_in, said);
                }
                Some(Event::Joined { .. }) => {}
                None => attempt.deadline_passed(),
            }
        }
        let now = Instant::now();
        attempt.ranks.iter().for_each(|rank| rank.output.drain(now, true));
        Ok(attempt)
    }

    fn is_over(&self) -> bool {
        let stopped = self.stopped_by.is_some() && !self.failed;
        self.all_have_ended() && (self.done || self.end.is_some() || stopped)
    }

    fn all_have_ended(&self) -> bool {
        !self.ranks.iter().any(Rank::is_running)
    }

    fn deadline(&self) -> Option<Instant> {
        if let Phase::Noticing(end) | Phase::Ending(end) = self.phase { Some(end) } else { None }
    }

    fn hear(&mut self, message: ToAgent) -> Result<()> {
        match message {
            ToAgent::Regroup(next) if matches!(self.phase, Phase::Running) && !self.is_settled => {
                self.regroup(next)?;
            }
            // The first that ends the job names the culprit: the coordinator is gone after it.
            ToAgent::End(end) if self.end.as_ref().is_none_or(|earlier| earlier.next.is_some()) => {
                if let Phase::Running | Phase::Noticing(_) = self.phase {
                    ask_to_end(&self.ranks, Signal::SIGTERM);
                    self.phase = Phase::Ending(Instant::now() + GRACE);
                }
                if let Some(earlier) = self.end.replace(end) {
                    say(earlier.reason);
                }
            }
            ToAgent::Leave => self.leave(),
            ToAgent::Done => {
                self.done = true;
                self.end_replacements();
            }
            ToAgent::Notice if matches!(self.phase, Phase::Running) => {
                self.tell_reasons();
                self.phase = Phase::Noticing(Instant::now() + NOTICE);
                self.tell_if_ended();
            }
            _ => {}
        }
        Ok(())
    }

    fn rank_ended(&mut self, local_rank: u16, at: Instant) -> Result<()> {
        let others_can_go_on = self.others_can_go_on();
        let rank = &mut self.ranks[usize::from(local_rank)];
        let success = rank.reap(at)?.status.success();
        self.seats.end(local_rank);
        if let Phase::Running | Phase::Noticing(_) = self.phase {
            let has_place = self.seats.has_place(local_rank);
            let is_unneeded = !has_place && rank.was_signalled_by(at);
            if success && has_place {
                self.settle(others_can_go_on);
            } else if !success && !is_unneeded {
                self.failed = true;
                // Nobody may read the console, which must not hide the failure.
                rank.output.drain(at, false);
                match rank.failure() {
                    Some(failure) if others_can_go_on => {
                        let (claim, generation) = (self.seats.claim(), self.placement.generation);
                        (self.tell)(ToCoordinator::Lost { failure, claim, generation });
                    }
                    Some(failure) => (self.tell)(ToCoordinator::Failed(failure)),
                    None => {}
                }
            }
            self.tell_if_ended();
        }
        Ok(())
    }

    fn tell_if_ended(&mut self) {
        match self.phase {
            _ if !self.all_have_ended() => {}
            Phase::Noticing(_) => self.tell_noticed(),
            Phase::Running if !self.failed => (self.tell)(ToCoordinator::Succeeded),
            _ => {}
        }
    }

    fn stop(&mut self, signal: Signal) {
        if self.stopped_by.is_some() {
            if signal == Signal::SIGINT {
                self.kill();
            }
            return;
        }
        self.stopped_by = Some(signal);
        (self.tell)(signals::stopped_by(signal));
        ask_to_end(&self.ranks, signal);
        if let Phase::Running | Phase::Noticing(_) = self.phase {
            self.phase = Phase::Ending(Instant::now() + GRACE);
        }
        say(format_args!("forwarding {signal} to the ranks"));
    }

    fn deadline_passed(&mut self) {
        match self.phase {
            Phase::Noticing(_) => self.tell_noticed(),
            _ => {
                self.kill();
                report::killed(&self.ranks);
            }
        }
    }

    /// Tells what the ranks have left that still run: such a rank may wait until the others have learned its reason.
    fn tell_reasons(&self) {
        let failures = self.ranks.iter().filter(|rank| rank.is_running()).filter_map(Rank::failure);
        failures.for_each(|failure| (self.tell)(ToCoordinator::Failed(failure)));
    }

    fn tell_noticed(&mut self) {
        self.tell_reasons();
        (self.tell)(ToCoordinator::Noticed);
        self.phase = Phase::Running;
    }

    fn kill(&mut self) {
        self.ranks.iter().for_each(|rank| rank.signal(Signal::SIGKILL));
        self.phase = Phase::Killed;
    }
}

/// Sends the signal to every rank. SIGCONT lets a stopped rank act on it.
fn ask_to_end(ranks: &[Rank], signal: Signal) {
    for rank in ranks {
        rank.signal(signal);
        rank.signal(Signal::SIGCONT);
    }
}
