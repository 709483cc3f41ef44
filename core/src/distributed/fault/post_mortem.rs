//! Finds the rank at fault when an exchange fails.
//!
//! The engine only notices that a connection broke or that time ran out. The cause can be found in the store and in the
//! process table. A rank that fails on its own leaves the reason in the store, and one that fails because of another
//! leaves a note that it is a victim. Ranks that run Python leave nothing, so they can only be reported as silent.

use super::blame::Blame;
use super::first_fault::{self, Fault};
use super::in_time::{ANSWER, in_time, until};
use super::members::{Member, member};
use super::process::State;
use super::reports::{self, Report, Reports, fault_of};
use super::search::{SEARCH, SEARCHED, Search};
use c10d_sys::{Error, ErrorKind, Store};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// The rank of the job that serves the store, unless the launcher does.
const SERVER: usize = 0;

pub(crate) struct PostMortem {
    pub(crate) search: Search,
    /// Whether torchrun's agent serves the store, or it is one by address or in a file: not rank 0 of the job.
    agent_store: bool,
    /// Whether the launcher tells the other ranks who is gone, so that none looks.
    pub(crate) is_elastic: bool,
    /// Whether a search for the rank at fault, or the report of a fault, counts this rank as one that looks no more.
    is_counted: AtomicBool,
    /// The first rank at fault that was found.
    pub(crate) found: OnceLock<Blame>,
}

impl PostMortem {
    pub(crate) fn new(
        store: Arc<Store>,
        rank: usize,
        world_size: usize,
        members: Vec<Member>,
        agent_store: bool,
    ) -> Self {
        // A group need not contain rank 0 of the job.
        let serves_store =
            !agent_store && member(&members, rank).is_some_and(|member| member.name == SERVER);
        let search = Search { store, serves_store, rank, world_size, members: members.into() };
        let (is_counted, found) = (AtomicBool::new(false), OnceLock::new());
        PostMortem { search, agent_store, is_elastic: false, is_counted, found }
    }

    pub(crate) fn python_ranks(&self) -> impl Iterator<Item = usize> {
        (0..self.search.world_size).filter(|rank| member(&self.search.members, *rank).is_none())
    }

    /// Leaves this rank's own failure in the store for the others, if that answers within `limit`.
    pub(crate) fn report(&self, fault: &str, limit: Duration) {
        first_fault::remember(|| Fault::Own);
        self.is_counted.store(true, Ordering::Relaxed);
        let (search, report) = (self.search.clone(), Report::Fault(fault.to_owned()));
        in_time(limit, move || report.leave(&search.store, search.rank));
    }

    /// Looks for the rank that made this rank's exchange fail. For errors that
    /// [`may_be_anothers_fault`](super::blame::may_be_anothers_fault).
    pub(crate) fn blame(&self) -> Option<Blame> {
        if self.is_elastic {
            first_fault::remember(|| Fault::Another(None));
            return None;
        }
        let search = self.search.clone();
        let is_counted = self.is_counted.swap(true, Ordering::Relaxed);
        // Rank 0 serves the store; if rank 0 is what died, an operation may never return.
        let blame = match in_time(self.limit(), move || search.run(is_counted)) {
            Some(Ok(blame)) => blame,
            Some(Err(error)) => Some(self.unusable_store(error.kind())),
            None => Some(self.silent_store()),
        };
        match &blame {
            Some(blame) => self.remember(blame),
            None => first_fault::remember(|| Fault::Another(None)),
        }
        blame
    }

    /// Remembers the rank at fault, for `found` and for when this rank ends.
    pub(crate) fn remember(&self, blame: &Blame) {
        first_fault::remember(|| Fault::Another(Some(blame.what.clone())));
        self.found.get_or_init(|| blame.clone());
    }

    /// Before this rank ends with a reported fault: rank 0 serves the store, so it stays until the others could look.
    pub(crate) fn let_the_others_look(&self, deadline: Instant) {
        if self.search.serves_store {
            let search = self.search.clone();
            in_time(until(deadline), move || search.wait_for_the_others(deadline));
        }
    }

    /// Before this rank ends because of another: a launcher may blame the first process that ends.
    pub(crate) fn let_the_culprit_end_first(&self, deadline: Instant) {
        let search = self.search.clone();
        let is_counted = self.is_counted.load(Ordering::Relaxed);
        in_time(until(deadline), move || {
            // One that was told without a search does not look any more either.
            if is_counted || search.store.add(SEARCHED, 1).is_ok() {
                search.wait_for_the_culprit(deadline);
            }
        });
    }

    /// What is known if an operation on the store fails with an error of this kind.
    fn unusable_store(&self, kind: ErrorKind) -> Blame {
        if kind != ErrorKind::Connection {
            return self.silent_store();
        }
        let (rank, server) = match self.agent_store {
            true => (None, "the process that serves it"),
            false => (Some(SERVER), "rank 0, which serves it,"),
        };
        Blame { rank, what: format!("the store cannot be reached: {server} has ended") }
    }

    /// How long a search may take. A store that this rank serves itself can only be slow.
    fn limit(&self) -> Duration {
        SEARCH + if self.search.serves_store { 10 * ANSWER } else { ANSWER }
    }

    /// What is known if the store does not answer.
    fn silent_store(&self) -> Blame {
        let is_server = |member: &&Member| !self.agent_store && member.name == SERVER;
        let mut servers = self.search.members.iter().filter(is_server);
        let what = format!("the store has not answered within {:?}", self.limit());
        match servers.find_map(Member::gone) {
            Some(how) => Blame::of(SERVER, format!("{how}; it serves the store")),
            // The network may be slow.
            None => Blame { rank: None, what },
        }
    }

    /// A rank that has reported a fault of its own, or whose process on this host has ended.
    pub(crate) fn culprit(&self) -> Option<Blame> {
        let seen: Vec<_> = self.others().map(|member| (member, member.ended())).collect();
        // Only now, because a rank reports before it ends.
        let reports = self.reports(ANSWER);
        let fault = self.others().find_map(|member| fault_of(member, &reports));
        let mut silent = seen.into_iter().filter(|(it, _)| !reports.contains_key(&it.rank));
        fault.or_else(|| silent.find_map(|(member, how)| Some(Blame::of(member.name, how?))))
    }

    /// A rank on this host for which `look` finds that its process is gone: [`Member::ended`] or [`Member::gone`].
    pub(crate) fn gone(&self, look: fn(&Member) -> Option<State>) -> Option<Blame> {
        let gone: Vec<_> =
            self.others().filter_map(|member| Some((member, look(member)?))).collect();
        if gone.is_empty() {
            return None;
        }
        let reports = self.reports(SEARCH);
        let blame = |(member, how): &(&Member, State)| match reports.get(&member.rank) {
            Some(_) => fault_of(member, &reports),
            None => Some(Blame::of(member.name, how)),
        };
        let names: Vec<_> = gone.iter().map(|(member, _)| member.name).collect();
        let what = format!("the exchange has failed on ranks {names:?}");
        Some(gone.iter().find_map(blame).unwrap_or(Blame { rank: None, what }))
    }

    /// Whether all ranks of this library have ended, except these of the job.
    pub(crate) fn all_gone_but(&self, names: &[usize]) -> bool {
        let mut others = self.search.members.iter().filter(|it| !names.contains(&it.name));
        others.all(|member| member.ended().is_some())
    }

    /// The other ranks of this library.
    fn others(&self) -> impl Iterator<Item = &Member> {
        self.search.members.iter().filter(|member| member.rank != self.search.rank)
    }

    /// What has been reported, if the store answers within `limit`.
    fn reports(&self, limit: Duration) -> Reports {
        let store = Arc::clone(&self.search.store);
        let reports = in_time(limit, move || reports::read(&store, limit));
        reports.and_then(Result::ok).unwrap_or_default()
    }
}

pub(crate) fn has_reported_a_fault(store: &Store, rank: usize) -> Result<bool, Error> {
    Ok(matches!(reports::read(store, ANSWER)?.get(&rank), Some(Report::Fault(_))))
}

#[cfg(test)]
mod tests;
