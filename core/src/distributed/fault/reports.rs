//! What the ranks of a group say of their own failures.
//!
//! Each rank appends a line of JSON to one list in the store, so that it takes one request to read all.

use super::{blame::Blame, members::Member};
use c10d_sys::{Error, Store};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::{collections::HashMap, time::Duration};

const LIST: &str = "reports";

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Report {
    /// It has failed on its own.
    Fault(String),
    /// Its exchange has failed because of another.
    Victim,
}

impl Report {
    pub(crate) fn leave(&self, store: &Store, rank: usize) -> Result<(), Error> {
        store.append(LIST, format!("{}\n", json!((rank, self))).as_bytes())
    }
}

/// What has been reported so far, by rank.
pub(crate) type Reports = HashMap<usize, Report>;

/// `timeout` is how long the store may take to answer.
pub(crate) fn read(store: &Store, timeout: Duration) -> Result<Reports, Error> {
    let mut reports = Reports::new();
    if !store.check(LIST)? {
        return Ok(reports);
    }
    let list = store.get(LIST, timeout)?;
    let read = |line| serde_json::from_str::<(usize, Report)>(line).ok();
    for (rank, report) in String::from_utf8_lossy(&list).lines().filter_map(read) {
        // A rank that has failed is a victim in all that it does from then on.
        let known = reports.entry(rank).or_insert(Report::Victim);
        if *known == Report::Victim {
            *known = report;
        }
    }
    Ok(reports)
}

/// The fault that this member has reported.
pub(crate) fn fault_of(member: &Member, reports: &Reports) -> Option<Blame> {
    match reports.get(&member.rank)? {
        Report::Fault(fault) => Some(Blame::of(member.name, format!("reports: {fault}"))),
        Report::Victim => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_at_fault_is_no_victim_whatever_else_it_reports() {
        let store = Store::hash().unwrap();
        let read = || read(&store, Duration::from_secs(60)).unwrap();
        assert_eq!(read().get(&1), None);
        let fault = Report::Fault("no space left\non the device".into());
        for (rank, report) in [(1, &fault), (1, &Report::Victim), (0, &Report::Victim)] {
            report.leave(&store, rank).unwrap();
        }
        assert_eq!(read(), Reports::from([(0, Report::Victim), (1, fault)]));
    }
}
