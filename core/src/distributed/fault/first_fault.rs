//! Whose fault the first failure of this process is.

use std::sync::Mutex;
use tch_parallel_base::lock;

/// Whose fault it is that an exchange failed.
pub(crate) enum Fault {
    Own,
    /// Another rank's, and what could be found out about it.
    Another(Option<String>),
}

static FIRST: Mutex<Option<Fault>> = Mutex::new(None);

/// Remembers whose fault the first failure is: the later ones follow from it.
pub(crate) fn remember(fault: impl FnOnce() -> Fault) {
    lock(&FIRST).get_or_insert_with(fault);
}

/// Returns and forgets the first failure: what comes next has nothing to do with it.
pub(crate) fn take() -> Option<Fault> {
    lock(&FIRST).take()
}
