//! What the ranks of a group say of their own failures.
//!
//! Each rank appends a line of JSON to one list in the store, so that it takes one request to read all.

use c10d_sys::{Error, Store};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::collections::HashMap;
use std::time::Duration;

const LIST: &str = "reports";

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Report {
    /// It has failed on its own.
    Fault(String),
    /// Its exchange has failed because of another.
    Victim,
}

impl Report {
    /// Adds this to the list, for `rank`.
    pub(crate) fn leave(&self, store: &Store, rank: usize) -> Result<(), Error> {
        store.append(LIST, format!("{}\n", json!((rank, self))).as_bytes())
    }
}

/// What has been reported so far, by rank.
#[derive(Debug, Default)]
pub(crate) struct Reports(HashMap<usize, Report>);

impl Reports {
    /// `timeout` is how long the store may take to answer.
    pub(crate) fn read(store: &Store, timeout: Duration) -> Result<Reports, Error> {
        if !store.check(LIST)? {
            return Ok(Reports::default());
        }
        let list = store.get(LIST, timeout)?;
        let list = String::from_utf8_lossy(&list);
        let read = |line| serde_json::from_str::<(usize, Report)>(line).ok();
        let mut reports = Reports::default();
        for (rank, report) in list.lines().filter_map(read) {
            // A rank that has failed is a victim in all that it does from then on.
            let known = reports.0.entry(rank).or_insert(Report::Victim);
            if *known == Report::Victim {
                *known = report;
            }
        }
        Ok(reports)
    }

    pub(crate) fn of(&self, rank: usize) -> Option<&Report> {
        self.0.get(&rank)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_at_fault_is_no_victim_whatever_else_it_reports() {
        let store = Store::hash().unwrap();
        let read = || Reports::read(&store, Duration::from_secs(60)).unwrap();
        assert_eq!(read().of(1), None);
        let fault = Report::Fault("no space left\non the device".into());
        for (rank, report) in [(1, &fault), (1, &Report::Victim), (0, &Report::Victim)] {
            report.leave(&store, rank).unwrap();
        }
        assert_eq!((read().of(0), read().of(1)), (Some(&Report::Victim), Some(&fault)));
    }
}
