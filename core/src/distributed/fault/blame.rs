//! The rank at fault.

use crate::Error;
use c10d_sys::ErrorKind;
use std::fmt;

/// The rank at fault, and what is known of it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Blame {
    /// Its number in the job, if it is one rank alone.
    pub rank: Option<usize>,
    pub what: String,
}

impl Blame {
    pub(crate) fn of(rank: usize, how: impl fmt::Display) -> Blame {
        Blame { rank: Some(rank), what: format!("rank {rank} {how}") }
    }
}

/// Why a wait has ended, and which rank is at fault if that is known.
pub(crate) type Reason = (String, Option<Blame>);

/// Whether an error of the engine says that others could not be reached, rather than that this rank made a mistake.
pub(crate) fn may_be_anothers_fault(error: &c10d_sys::Error) -> bool {
    matches!(error.kind(), ErrorKind::Connection | ErrorKind::Timeout)
}

/// An error that a backward pass passes on. If a collective has failed, it has not failed on this rank alone.
pub(crate) fn for_the_engine(error: Error) -> c10d_sys::Error {
    match error {
        Error::Collective { .. } => c10d_sys::Error::new(ErrorKind::Connection, error.to_string()),
        error => error.to_string().into(),
    }
}

/// A collective that failed on this rank.
pub(crate) fn failed_collective(
    rank: usize,
    operation: &'static str,
    message: impl Into<String>,
    blame: Option<Blame>,
) -> Error {
    let (culprit, blame) = blame.map_or((None, None), |blame| (blame.rank, Some(blame.what)));
    Error::Collective { rank, operation, message: message.into(), culprit, blame }
}
