//! New places for living ranks, and new processes for those that have failed.

use anyhow::Result;

use super::{Attempt, Phase};
use crate::console::say;
use crate::elastic::{self, Place, Said};
use crate::error_file::Clock;
use crate::failure::Failure;
use crate::protocol::{Placement, ToCoordinator};
use crate::rank::Rank;

impl Attempt<'_> {
    /// What a rank says of its place. `started_in` is its process's generation.
    pub(super) fn hear_rank(&mut self, local_rank: u16, started_in: u32, said: Said) {
        let rank = &self.ranks[usize::from(local_rank)];
        if rank.started_in != started_in || !rank.is_running() || self.has_succeeded() {
            return;
        }
        let rank = &mut self.ranks[usize::from(local_rank)];
        match said {
            Said::TakesPart(channel) => {
                rank.channel = Some(channel);
                if rank.has_place {
                    let count = self.ranks.len() as u16;
                    self.tell_place(local_rank, (local_rank, count), false);
                }
                let is_missing = |rank: &Rank| rank.has_place && rank.channel.is_none();
                if !self.ranks.iter().any(is_missing) {
                    let ranks = self.claim();
                    (self.tell)(ToCoordinator::TakesPart { ranks });
                }
            }
            Said::Broken(generation) => (self.tell)(ToCoordinator::Broken { generation }),
        }
    }

    /// Whether the others can go on without one that fails.
    pub(super) fn others_can_go_on(&self) -> bool {
        let takes_part = |rank: &Rank| rank.channel.is_some() || !rank.has_place;
        matches!(self.phase, Phase::Running)
            && self.ranks.iter().all(takes_part)
            && !self.has_succeeded()
    }

    /// Whether a rank has ended well, so that no other can be replaced any more.
    pub(super) fn has_succeeded(&self) -> bool {
        self.ranks.iter().any(|rank| rank.end.is_some_and(|end| end.status.success()))
    }

    /// Tells that the others can go on.
    pub(super) fn tell_lost(&mut self, failure: Failure) {
        let ranks = self.claim();
        (self.tell)(ToCoordinator::Lost { failure, ranks });
    }

    /// Ends those that wait for a place: nobody needs them any more.
    pub(super) fn end_replacements(&self) {
        let waits = |rank: &&Rank| rank.is_running() && !rank.has_place;
        self.ranks.iter().filter(waits).for_each(|rank| rank.signal(nix::sys::signal::SIGKILL));
    }

    /// Starts ranks in the place of those that have failed, and tells the others their new places.
    pub(super) fn regroup(
        &mut self,
        placement: Placement,
        master_port: u16,
        ranks: u16,
        is_loss: bool,
        reason: Option<String>,
    ) -> Result<()> {
        reason.iter().for_each(say);
        self.failed = false;
        let Placement { generation, restarts, .. } = placement;
        let start = Placement { generation, restarts, ..self.whole.clone() };
        (self.placement, self.master_port) = (placement, master_port);
        for local_rank in 0..self.ranks.len() as u16 {
            if !self.ranks[usize::from(local_rank)].is_running() {
                let clock = Clock::default();
                let mut new =
                    self.supervisor.start_rank(&start, local_rank, master_port, &clock)?;
                new.has_place = false;
                self.ranks[usize::from(local_rank)] = new;
            }
        }
        self.owes_loss |= is_loss;
        if self.claimed.len() != usize::from(ranks) {
            // It answers an earlier claim, so a newer one is on its way.
            return Ok(());
        }
        let is_loss = std::mem::take(&mut self.owes_loss);
        for (number, local_rank) in (0..).zip(self.claimed.clone()) {
            let rank = &mut self.ranks[usize::from(local_rank)];
            if !rank.is_running() {
                // Its end is told next, and makes another generation.
                continue;
            }
            rank.has_place = true;
            rank.rank = self.placement.rank(number);
            self.tell_place(local_rank, (number, ranks), is_loss);
        }
        Ok(())
    }

    /// The ranks that can have a place in the next generation.
    fn claim(&mut self) -> u16 {
        let there = |&local_rank: &u16| {
            let rank = &self.ranks[usize::from(local_rank)];
            rank.is_running() && rank.channel.is_some()
        };
        self.claimed = (0..self.ranks.len() as u16).filter(there).collect();
        self.claimed.len() as u16
    }

    fn tell_place(&self, local_rank: u16, number: (u16, u16), is_loss: bool) {
        let variables =
            self.supervisor.place(&self.placement, local_rank, number, self.master_port);
        let place = Place { generation: self.placement.generation, is_loss, variables };
        let channel = &self.ranks[usize::from(local_rank)].channel;
        channel.iter().for_each(|channel| elastic::tell(channel, &place));
    }
}
