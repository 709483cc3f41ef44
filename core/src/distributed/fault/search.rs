//! The search of a rank whose exchange has failed, for the rank at fault.

use super::blame::Blame;
use super::members::{Member, member};
use super::process::{Process, State};
use super::reports::{self, Report, fault_of};
use c10d_sys::{Error, Store};
use std::time::{Duration, Instant};
use std::{sync::Arc, thread};
use tch_parallel_contract::NOTICE;

/// How long a victim looks for the cause. Then the launcher ends the others, so nobody would read what is found later.
pub(crate) const SEARCH: Duration = NOTICE.saturating_sub(Duration::from_millis(100));

/// The key under which ranks that have looked for the rank at fault are counted.
pub(crate) const SEARCHED: &str = "searched";

/// How often it looks.
const INTERVAL: Duration = Duration::from_millis(20);

/// What a victim does to find the rank at fault.
#[derive(Clone)]
pub(crate) struct Search {
    pub(crate) store: Arc<Store>,
    /// Whether this rank serves it.
    pub(crate) serves_store: bool,
    pub(crate) rank: usize,
    pub(crate) world_size: usize,
    /// All ranks of this library that the group has.
    pub(crate) members: Arc<[Member]>,
}

impl Search {
    /// `is_counted`: whether this rank is already among those that have looked.
    pub(crate) fn run(self, is_counted: bool) -> Result<Option<Blame>, Error> {
        let deadline = Instant::now() + SEARCH;
        let blame = self.look_until_found(deadline)?;
        // Rank 0 serves the store, so it stays until the others have had time to look.
        if (is_counted || self.store.add(SEARCHED, 1).is_ok()) && self.serves_store {
            self.wait_for_the_others(deadline);
        }
        Ok(blame)
    }

    pub(crate) fn look_until_found(&self, deadline: Instant) -> Result<Option<Blame>, Error> {
        Report::Victim.leave(&self.store, self.rank)?;
        loop {
            let others = (0..self.world_size).filter(|rank| *rank != self.rank);
            let look = |rank| {
                let member = member(&self.members, rank);
                // In messages, a rank that runs Python has its number in the group.
                let name = member.map_or(rank, |member| member.name);
                (rank, name, member.and_then(|member| member.process.as_ref()?.look()))
            };
            let seen: Vec<_> = others.map(look).collect();
            // Only now, because a rank reports before it ends.
            let reports = reports::read(&self.store, SEARCH)?;
            // Ranks without a report, sorted by what this host can see of their processes.
            let (mut silent, mut alive, mut gone) = (Vec::new(), Vec::new(), Vec::new());
            for (rank, name, state) in seen {
                match (reports.get(&rank), state) {
                    (Some(Report::Fault(fault)), _) => {
                        return Ok(Some(Blame::of(name, format!("reports: {fault}"))));
                    }
                    (Some(Report::Victim), _) => {}
                    (None, None) => silent.push(name),
                    (None, Some(State::Running)) => alive.push(name),
                    (None, Some(how)) => gone.push(Blame::of(name, how)),
                }
            }
            if let Some(gone) = gone.into_iter().next() {
                return Ok(Some(gone));
            }
            if Instant::now() >= deadline {
                return Ok(without_a_trace(&silent, &alive));
            }
            thread::sleep(INTERVAL);
        }
    }

    /// Waits for the end of a rank that has reported a fault of its own, if it is on this host.
    pub(crate) fn wait_for_the_culprit(&self, deadline: Instant) {
        let Ok(reports) = reports::read(&self.store, SEARCH) else { return };
        let has_reported = |member: &&Member| fault_of(member, &reports).is_some();
        let Some(culprit) = self.members.iter().find(has_reported) else { return };
        let runs = |process: &Process| matches!(process.look(), Some(State::Running));
        while culprit.process.as_ref().is_some_and(runs) && Instant::now() < deadline {
            thread::sleep(INTERVAL);
        }
    }

    pub(crate) fn wait_for_the_others(&self, deadline: Instant) {
        while Instant::now() < deadline {
            let Ok(searched) = self.store.add(SEARCHED, 0) else { return };
            let Ok(reports) = reports::read(&self.store, SEARCH) else { return };
            // Ranks at fault never search. There is one at least, even if it could not report that.
            let at_fault = reports.values().filter(|it| matches!(it, Report::Fault(_))).count();
            if searched as usize + at_fault.max(1) >= self.world_size {
                return;
            }
            thread::sleep(INTERVAL);
        }
    }
}

/// What is known after the search if nobody has reported a fault and no process is known to be gone.
fn without_a_trace(silent: &[usize], alive: &[usize]) -> Option<Blame> {
    let (rank, what) = match (silent, alive) {
        ([], []) => return None,
        // The exchange has failed on all others, so these have no part in it.
        ([], &[rank]) => {
            let what = "runs, but has not failed: it did not come, or has gone on";
            return Some(Blame::of(rank, what));
        }
        ([], ranks) => (None, format!("ranks {ranks:?} run: they did not come, or have gone on")),
        (&[rank], _) => (Some(rank), format!("no word from rank {rank} within {SEARCH:?}")),
        (ranks, _) => (None, format!("no word from ranks {ranks:?} within {SEARCH:?}")),
    };
    Some(Blame { rank, what })
}
