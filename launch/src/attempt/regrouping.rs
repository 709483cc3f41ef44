//! New places for living ranks, and new processes for those that have failed.

use super::{Attempt, Phase};
use crate::elastic::{self, Said, Told};
use crate::{error_file::Clock, prelude::*, rank::variables};
use std::sync::atomic::Ordering;

impl Attempt<'_> {
    /// What a rank says of its place. `started_in` is its process's generation.
    pub(super) fn hear_rank(&mut self, local_rank: u16, started_in: u32, said: Said) {
        let rank = &self.ranks[usize::from(local_rank)];
        if rank.started_in != started_in || !rank.is_running() {
            return;
        }
        match said {
            Said::TakesPart(channel) => {
                self.ranks[usize::from(local_rank)].channel = Some(channel);
                if self.seats.has_place(local_rank) {
                    self.tell_place(local_rank, (local_rank, self.ranks.len() as u16), false);
                }
                if let Some(claim) = self.seats.take_part(local_rank) {
                    (self.tell)(ToCoordinator::TakesPart(claim));
                }
            }
            Said::Broken(generation) => (self.tell)(ToCoordinator::Broken { generation }),
            Said::Finished(generation) => {
                self.seats.finish(local_rank, generation);
                self.tell_if_finished();
            }
        }
    }

    pub(super) fn others_can_go_on(&self) -> bool {
        matches!(self.phase, Phase::Running) && self.seats.all_take_part() && !self.is_settled
    }

    /// A rank that has a place has exited with code 0.
    pub(super) fn settle(&mut self, others_wait_for_it: bool) {
        self.is_settled = true;
        self.end_replacements();
        if others_wait_for_it {
            (self.tell)(ToCoordinator::Settled { generation: self.placement.generation });
            self.tell_if_finished();
        }
    }

    fn tell_if_finished(&self) {
        let generation = self.placement.generation;
        if self.seats.have_finished(generation) {
            (self.tell)(ToCoordinator::Finished { generation });
        }
    }

    /// All ranks of the job have finished: they may end.
    pub(super) fn leave(&mut self) {
        self.is_settled = true;
        self.end_replacements();
        let channels = self.ranks.iter().filter_map(|rank| rank.channel.as_ref());
        channels.for_each(|channel| elastic::tell(channel, &Told::Leave));
    }

    /// Ends those that wait for a place: nobody needs them any more.
    pub(super) fn end_replacements(&self) {
        let waiting =
            (0..).zip(&self.ranks).filter(|(local_rank, _)| !self.seats.has_place(*local_rank));
        waiting.for_each(|(_, rank)| rank.signal(Signal::SIGKILL));
    }

    /// Starts ranks in the place of those that have failed, and tells the others their new places.
    pub(super) fn regroup(&mut self, next: Regroup) -> Result<()> {
        let Regroup { placement, master_port, claim, is_loss, reason } = next;
        reason.iter().for_each(say);
        self.failed = false;
        let Placement { generation, restarts, .. } = placement;
        let start = Placement { generation, restarts, ..self.whole.clone() };
        (self.placement, self.master_port) = (placement, master_port);
        for local_rank in self.seats.refill() {
            let clock = Clock::default();
            self.ranks[usize::from(local_rank)] =
                self.supervisor.start_rank(&start, local_rank, master_port, &clock)?;
        }
        for (number, local_rank) in self.seats.take_places(claim) {
            let rank = &mut self.ranks[usize::from(local_rank)];
            rank.rank = self.placement.rank(number);
            rank.output.rank.store(rank.rank, Ordering::Relaxed);
            self.tell_place(local_rank, (number, claim.ranks), is_loss);
        }
        Ok(())
    }

    fn tell_place(&self, local_rank: u16, number: (u16, u16), is_loss: bool) {
        let (args, port) = (self.supervisor.args, self.master_port);
        let variables = variables(args, &self.placement, local_rank, number, port);
        let place = Told::Place { generation: self.placement.generation, is_loss, variables };
        let channel = &self.ranks[usize::from(local_rank)].channel;
        channel.iter().for_each(|channel| elastic::tell(channel, &place));
    }
}
