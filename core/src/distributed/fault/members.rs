//! The ranks of a group that use this library, and their processes.
//!
//! Each rank appends a line of JSON to one list in the store, which one request reads. Python's ranks are not in it.

use super::in_time::in_time;
use super::process::{Process, State};
use c10d_sys::{Error, Store};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::{sync::Arc, time::Duration};

const LIST: &str = "members";

/// How long the store may take to answer when the timeout is over already.
const ANSWER: Duration = Duration::from_secs(1);

/// A rank that has signed the list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Member {
    /// Its number in the group.
    pub(crate) rank: usize,
    /// Its number in the job, which is the one in messages.
    pub(crate) name: usize,
    /// `None` if it could not be determined.
    pub(crate) process: Option<Process>,
}

impl Member {
    /// This process.
    pub(crate) fn new(rank: usize, name: usize) -> Member {
        Member { rank, name, process: Process::of(std::process::id()) }
    }

    pub(crate) fn sign(&self, store: &Store) -> Result<(), Error> {
        store.append(LIST, format!("{}\n", json!(self)).as_bytes())
    }

    /// What has become of its process, if it no longer runs. Only this host's can be seen.
    pub(crate) fn gone(&self) -> Option<State> {
        let state = self.process.as_ref()?.look()?;
        (!matches!(state, State::Running)).then_some(state)
    }

    /// The same, unless it is only stopped, by a debugger for instance, and may go on.
    pub(crate) fn ended(&self) -> Option<State> {
        self.gone().filter(|state| matches!(state, State::Ended(_)))
    }
}

/// The member with this number in the group.
pub(crate) fn member(members: &[Member], rank: usize) -> Option<&Member> {
    members.iter().find(|member| member.rank == rank)
}

/// All that have signed so far, of which there is at least one.
pub(crate) fn read(store: &Store, timeout: Duration) -> Result<Vec<Member>, Error> {
    let list = store.get(LIST, timeout)?;
    let members = String::from_utf8_lossy(&list);
    Ok(members.lines().filter_map(|line| serde_json::from_str(line).ok()).collect())
}

/// Which ranks have not signed, for an error after the timeout. `names` are the numbers of all in the job.
pub(crate) fn absent(store: &Arc<Store>, names: &[usize], timeout: Duration) -> Option<String> {
    let store = Arc::clone(store);
    // Rank 0 serves the store, and may have ended.
    let members = in_time(ANSWER, move || read(&store, ANSWER))?.ok()?;
    let is_absent = |rank: &usize| members.iter().all(|member| member.rank != *rank);
    let absent: Vec<_> = (0..names.len()).filter(is_absent).map(|rank| names[rank]).collect();
    match absent.as_slice() {
        [] => None,
        [rank] => Some(format!("rank {rank} did not arrive within {timeout:?}")),
        ranks => Some(format!("ranks {ranks:?} did not arrive within {timeout:?}")),
    }
}
