//! Finds the rank at fault when an exchange fails.
//!
//! The engine only notices that a connection broke or that time ran out. The cause can be found in
//! the store and in the process table. At the start, every rank leaves its process's identity in
//! the store. A rank that fails on its own leaves the reason there, and one that fails because of
//! another leaves a note that it is a victim. Ranks that run Python leave nothing, so they can only
//! be reported as silent.

use super::process::{Process, State};
use c10d_sys::{ErrorKind, Store};
use std::fmt;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// How long a victim looks for the cause. The launcher kills the remaining ranks one second after
/// the first failure, so nobody would read what is found later.
const SEARCH: Duration = Duration::from_millis(900);

/// How often it looks.
const INTERVAL: Duration = Duration::from_millis(20);

/// For store operations that answer at once or never.
const ANSWER: Duration = Duration::from_millis(500);

/// The rank at fault, and what is known of it.
#[derive(Debug, PartialEq)]
pub(crate) struct Blame {
    /// Its number in the job, if it is one rank alone.
    pub rank: Option<usize>,
    pub what: String,
}

impl Blame {
    fn of(rank: usize, how: impl fmt::Display) -> Blame {
        Blame { rank: Some(rank), what: format!("rank {rank} {how}") }
    }

    /// Rank 0 serves the store.
    fn of_the_store(what: &str) -> Blame {
        Blame { rank: Some(0), what: what.into() }
    }
}

pub(super) struct PostMortem {
    store: Arc<Store>,
    rank: usize,
    world_size: usize,
}

impl PostMortem {
    /// Leaves this process's identity in the store: its process, and its rank in the job, which is
    /// the one in messages.
    pub(super) fn new(
        store: Arc<Store>,
        rank: usize,
        world_size: usize,
        job_rank: usize,
    ) -> Result<Self, c10d_sys::Error> {
        // The name comes first, because a rank that finds the process looks for the name.
        store.set(&name_key(rank), job_rank.to_string().as_bytes())?;
        if let Some(process) = Process::of(std::process::id()) {
            store.set(&process_key(rank), process.to_text().as_bytes())?;
        } else {
            store.set(&process_key(rank), b"unknown")?;
        }
        Ok(PostMortem { store, rank, world_size })
    }

    /// The ranks that never reached the store, for an error after the timeout.
    pub(super) fn absent(&self, timeout: Duration) -> Option<String> {
        let others = self.others();
        let store = Arc::clone(&self.store);
        let absent: Vec<usize> = in_time(ANSWER, move || {
            let mut others = others;
            others.retain(|rank| matches!(store.check(&process_key(*rank)), Ok(false)));
            others
        })?;
        match absent.as_slice() {
            [] => None,
            [rank] => Some(format!("rank {rank} did not arrive within {timeout:?}")),
            ranks => Some(format!("ranks {ranks:?} did not arrive within {timeout:?}")),
        }
    }

    /// Whether a rank has left its identity. Ranks that run Python do not.
    pub(super) fn knows(&self, rank: usize) -> Result<bool, c10d_sys::Error> {
        self.store.check(&process_key(rank))
    }

    /// Leaves this rank's own failure in the store for the others.
    pub(super) fn report(&self, fault: &str) {
        let store = Arc::clone(&self.store);
        let (key, fault) = (report_key(self.rank), format!("{CAUSE}{fault}"));
        in_time(ANSWER, move || store.set(&key, fault.as_bytes()));
    }

    /// Looks for the rank that made this rank's exchange fail. For errors that
    /// [`may_be_anothers_fault`].
    pub(super) fn blame(&self) -> Option<Blame> {
        let search = self.search();
        // Rank 0 serves the store; if rank 0 is what died, an operation may never return.
        in_time(SEARCH + ANSWER, move || search.run()).unwrap_or_else(|| {
            Some(Blame::of_the_store(
                "the store does not answer: rank 0, which serves it, has ended or is stopped",
            ))
        })
    }

    /// A rank whose process has ended or is stopped without a report, as far as this rank can tell.
    /// May take as long as the store takes to answer.
    pub(super) fn gone(&self) -> Option<Blame> {
        let search = self.search();
        search.others.iter().find_map(|&rank| match search.look_at(rank) {
            Ok(Finding::Gone(how)) => Some(Blame::of(search.name(rank).ok()?, how)),
            _ => None,
        })
    }

    fn search(&self) -> Search {
        Search {
            store: Arc::clone(&self.store),
            rank: self.rank,
            others: self.others(),
            deadline: Instant::now() + SEARCH,
        }
    }

    fn others(&self) -> Vec<usize> {
        (0..self.world_size).filter(|rank| *rank != self.rank).collect()
    }
}

/// The first character of a report distinguishes a cause from a victim's note.
const CAUSE: char = '!';
const VICTIM: char = '?';

struct Search {
    store: Arc<Store>,
    rank: usize,
    others: Vec<usize>,
    deadline: Instant,
}

/// What is known of another rank.
enum Finding {
    /// It has reported a fault of its own.
    Fault(String),
    /// It has reported that its exchange failed as well.
    Victim,
    /// Its process has ended or is stopped, without a report.
    Gone(String),
    /// It has reported nothing, and its process cannot be seen from here.
    Silent,
    /// It runs.
    Alive,
}

impl Search {
    fn run(self) -> Option<Blame> {
        let outcome = self.look_until_found();
        let unreachable = outcome.is_err();
        let blame = outcome.unwrap_or_else(|_| {
            let what = "the store cannot be reached: rank 0, which serves it, has ended";
            Some(Blame::of_the_store(what))
        });
        if !unreachable {
            self.let_the_others_finish();
        }
        blame
    }

    fn look_until_found(&self) -> Result<Option<Blame>, c10d_sys::Error> {
        self.store.set(&report_key(self.rank), VICTIM.to_string().as_bytes())?;
        loop {
            let (mut silent, mut alive) = (Vec::new(), Vec::new());
            let mut gone = None;
            for &rank in &self.others {
                match self.look_at(rank)? {
                    Finding::Fault(fault) => {
                        let how = format!("reports: {fault}");
                        return Ok(Some(Blame::of(self.name(rank)?, how)));
                    }
                    Finding::Gone(how) if gone.is_none() => {
                        gone = Some(Blame::of(self.name(rank)?, how));
                    }
                    Finding::Silent => silent.push(rank),
                    Finding::Alive => alive.push(rank),
                    Finding::Gone(_) | Finding::Victim => {}
                }
            }
            if gone.is_some() {
                return Ok(gone);
            }
            if Instant::now() >= self.deadline {
                let names = |ranks: Vec<usize>| ranks.into_iter().map(|rank| self.name(rank));
                let silent = names(silent).collect::<Result<Vec<_>, _>>()?;
                let alive = names(alive).collect::<Result<Vec<_>, _>>()?;
                return match (silent.as_slice(), alive.as_slice()) {
                    ([], []) => Ok(None),
                    // The exchange has failed on all others, so these have no part in it.
                    ([], &[rank]) => {
                        let how = "runs, but has not failed: it did not come, or has gone on";
                        Ok(Some(Blame::of(rank, how)))
                    }
                    ([], ranks) => Ok(Some(Blame {
                        rank: None,
                        what: format!("ranks {ranks:?} run: they did not come, or have gone on"),
                    })),
                    (&[rank], _) => Ok(Some(Blame {
                        rank: Some(rank),
                        what: format!("no word from rank {rank} within {SEARCH:?}"),
                    })),
                    (ranks, _) => Ok(Some(Blame {
                        rank: None,
                        what: format!("no word from ranks {ranks:?} within {SEARCH:?}"),
                    })),
                };
            }
            thread::sleep(INTERVAL);
        }
    }

    fn look_at(&self, rank: usize) -> Result<Finding, c10d_sys::Error> {
        if self.store.check(&report_key(rank))? {
            let report = self.store.get(&report_key(rank), ANSWER)?;
            let report = String::from_utf8_lossy(&report);
            return Ok(match report.strip_prefix(CAUSE) {
                Some(fault) => Finding::Fault(fault.to_owned()),
                None => Finding::Victim,
            });
        }
        if !self.store.check(&process_key(rank))? {
            return Ok(Finding::Silent);
        }
        let process = self.store.get(&process_key(rank), ANSWER)?;
        let process = Process::from_text(&String::from_utf8_lossy(&process));
        Ok(match process.and_then(|process| process.look()) {
            None => Finding::Silent,
            Some(State::Running) => Finding::Alive,
            Some(State::Ended(pid)) => Finding::Gone(format!("(pid {pid}) has ended")),
            Some(State::Stopped(pid)) => Finding::Gone(format!("(pid {pid}) is stopped")),
        })
    }

    /// The rank in the job of a group member. Its number in the group if it has left no identity.
    fn name(&self, rank: usize) -> Result<usize, c10d_sys::Error> {
        if !self.store.check(&name_key(rank))? {
            return Ok(rank);
        }
        let name = self.store.get(&name_key(rank), ANSWER)?;
        // Only `PostMortem::new` writes it.
        Ok(String::from_utf8_lossy(&name).parse().unwrap_or(rank))
    }

    /// Rank 0 serves the store, so it stays until the others have had time to look.
    fn let_the_others_finish(&self) {
        if self.store.add("searched", 1).is_err() || self.rank != 0 {
            return;
        }
        while Instant::now() < self.deadline {
            let Ok(searched) = self.store.add("searched", 0) else { return };
            // This rank itself is counted, and the rank at fault never searches.
            if searched >= self.others.len() as i64 {
                return;
            }
            thread::sleep(INTERVAL);
        }
    }
}

/// Whether an error of the engine says that others could not be reached, rather than that this rank
/// made a mistake.
pub(super) fn may_be_anothers_fault(error: &c10d_sys::Error) -> bool {
    matches!(error.kind(), ErrorKind::Connection | ErrorKind::Timeout)
}

fn process_key(rank: usize) -> String {
    format!("process/{rank}")
}

fn name_key(rank: usize) -> String {
    format!("name/{rank}")
}

fn report_key(rank: usize) -> String {
    format!("report/{rank}")
}

/// Runs `f` on another thread, and gives up on it after `limit`.
fn in_time<T: Send + 'static>(
    limit: Duration,
    f: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        // The receiver is gone once the limit has passed.
        let _ = sender.send(f());
    });
    receiver.recv_timeout(limit).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    fn world(size: usize) -> (Arc<Store>, Vec<PostMortem>) {
        let store = Arc::new(Store::hash().unwrap());
        let rank = |rank| PostMortem::new(Arc::clone(&store), rank, size, rank).unwrap();
        let ranks = (0..size).map(rank).collect();
        (store, ranks)
    }

    /// Stores the identity of another process under a rank.
    fn impersonate(store: &Store, rank: usize, pid: u32) {
        let process = Process::of(pid).unwrap();
        store.set(&process_key(rank), process.to_text().as_bytes()).unwrap();
    }

    #[test]
    fn a_killed_process_is_named() {
        let (store, ranks) = world(3);
        let mut child = Command::new("sleep").arg("60").stdin(Stdio::null()).spawn().unwrap();
        impersonate(&store, 2, child.id());
        child.kill().unwrap();
        child.wait().unwrap();
        let what = format!("rank 2 (pid {}) has ended", child.id());
        assert_eq!(ranks[1].blame().unwrap(), Blame { rank: Some(2), what });
    }

    #[test]
    fn members_of_a_group_are_named_as_the_job_knows_them() {
        let store = Arc::new(Store::hash().unwrap());
        let member = |(rank, name)| PostMortem::new(Arc::clone(&store), rank, 3, name).unwrap();
        let [first, _, third] = [(0, 2), (1, 5), (2, 7)].map(member);
        let blame = || first.search().look_until_found().unwrap().unwrap();
        assert!(blame().what.starts_with("ranks [5, 7] run"));
        // The processes of another host cannot be seen.
        store.set(&process_key(1), b"unknown").unwrap();
        assert_eq!(blame().rank, Some(5));
        store.set(&process_key(2), b"unknown").unwrap();
        assert!(blame().what.starts_with("no word from ranks [5, 7]"));
        third.report("no space left");
        let what = "rank 7 reports: no space left".into();
        assert_eq!(blame(), Blame { rank: Some(7), what });
    }

    #[test]
    fn a_reported_fault_is_passed_on() {
        let (_store, ranks) = world(3);
        ranks[1].report("its weights have another shape");
        assert_eq!(
            ranks[2].blame().unwrap().what,
            "rank 1 reports: its weights have another shape"
        );
    }

    #[test]
    fn a_victim_is_not_blamed() {
        let (store, ranks) = world(3);
        let mut child = Command::new("sleep").arg("60").stdin(Stdio::null()).spawn().unwrap();
        for rank in [1, 2] {
            impersonate(&store, rank, child.id());
        }
        child.kill().unwrap();
        child.wait().unwrap();
        store.set(&report_key(1), VICTIM.to_string().as_bytes()).unwrap();
        let blame = ranks[0].search().look_until_found().unwrap().unwrap();
        assert_eq!(blame.rank, Some(2), "{blame:?}");
    }

    #[test]
    fn of_ranks_that_run_the_one_whose_exchange_has_not_failed_is_named() {
        let (store, ranks) = world(3);
        store.set(&report_key(1), VICTIM.to_string().as_bytes()).unwrap();
        let blame = ranks[0].search().look_until_found().unwrap().unwrap();
        assert_eq!(blame.rank, Some(2), "{blame:?}");
        assert!(blame.what.starts_with("rank 2 runs, but has not failed"), "{blame:?}");
    }

    #[test]
    fn ranks_that_never_came_are_absent() {
        let store = Arc::new(Store::hash().unwrap());
        let first = PostMortem::new(Arc::clone(&store), 0, 3, 0).unwrap();
        let _third = PostMortem::new(store, 2, 3, 2).unwrap();
        let timeout = Duration::from_secs(3);
        assert_eq!(first.absent(timeout).unwrap(), "rank 1 did not arrive within 3s");
    }

    #[test]
    fn only_a_broken_exchange_may_be_anothers_fault() {
        let error = c10d_sys::Error::from_text;
        let broken = error("[gloo/transport/tcp/pair.cc] Connection closed by peer");
        assert!(may_be_anothers_fault(&broken));
        assert!(!may_be_anothers_fault(&error("mat1 and mat2 shapes cannot be multiplied")));
    }
}
