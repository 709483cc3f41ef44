//! What the ranks of a group say of their own failures.
//!
//! Each rank appends to one list in the store, so that it takes one request to read all.

use c10d_sys::{Error, Store};
use std::collections::HashMap;
use std::time::Duration;

const LIST: &str = "reports";

/// No message contains it, because C++ would end a text there.
const END: char = '\0';

/// The first character tells a fault from a victim's note.
const FAULT: char = '!';
const VICTIM: char = '?';

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Report {
    /// It has failed on its own.
    Fault(String),
    /// Its exchange has failed because of another.
    Victim,
}

impl Report {
    /// Adds this to the list, for `rank`.
    pub(crate) fn leave(&self, store: &Store, rank: usize) -> Result<(), Error> {
        let report = match self {
            Report::Fault(fault) => format!("{rank} {FAULT}{}{END}", fault.replace(END, "")),
            Report::Victim => format!("{rank} {VICTIM}{END}"),
        };
        store.append(LIST, report.as_bytes())
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
        let mut reports = Reports::default();
        for (rank, report) in list.split_terminator(END).filter_map(parse) {
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

fn parse(entry: &str) -> Option<(usize, Report)> {
    let (rank, report) = entry.split_once(' ')?;
    let report =
        report.strip_prefix(FAULT).map_or(Report::Victim, |fault| Report::Fault(fault.into()));
    Some((rank.parse().ok()?, report))
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
