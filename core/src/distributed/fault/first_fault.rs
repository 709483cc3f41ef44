//! Whose fault the first failure of this process is.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Whose fault it is that an exchange failed.
#[derive(Debug, Clone)]
pub(crate) enum Fault {
    Own,
    /// Another rank's, and what could be found out about it.
    Another(Option<String>),
}

/// `None` outside of [`record`](fn@super::record::record), and nothing in it until something fails.
static FIRST: Mutex<Option<Option<Fault>>> = Mutex::new(None);

fn first() -> MutexGuard<'static, Option<Option<Fault>>> {
    FIRST.lock().unwrap_or_else(PoisonError::into_inner)
}

/// From now on faults are remembered.
pub(crate) fn begin() {
    first().get_or_insert_default();
}

/// What is remembered. From now on, nothing is.
pub(crate) fn end() -> Option<Fault> {
    first().take().flatten()
}

/// Remembers whose fault the first failure is: the later ones follow from it.
pub(crate) fn remember(fault: impl FnOnce() -> Fault) {
    if let Some(first) = &mut *first() {
        first.get_or_insert_with(fault);
    }
}

/// What comes next has nothing to do with it.
pub(crate) fn forget() {
    if let Some(first) = &mut *first() {
        *first = None;
    }
}
