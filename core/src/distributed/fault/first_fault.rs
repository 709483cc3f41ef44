//! Whose fault the first failure of this process is.

use std::sync::Mutex;
use tch_parallel_base::lock;

/// Whose fault it is that an exchange failed.
#[derive(Debug)]
pub(crate) enum Fault {
    Own,
    /// Another rank's, and what could be found out about it.
    Another(Option<String>),
}

/// What this process remembers.
enum Memory {
    /// Nothing, outside of [`record`](fn@super::record::record).
    Off,
    /// The first failure, once there is one.
    On(Option<Fault>),
}

static MEMORY: Mutex<Memory> = Mutex::new(Memory::Off);

/// Starts to remember faults.
pub(crate) fn begin() {
    let mut memory = lock(&MEMORY);
    if let Memory::Off = *memory {
        *memory = Memory::On(None);
    }
}

/// Returns what was remembered, and stops remembering.
pub(crate) fn end() -> Option<Fault> {
    match std::mem::replace(&mut *lock(&MEMORY), Memory::Off) {
        Memory::Off => None,
        Memory::On(first) => first,
    }
}

/// Remembers whose fault the first failure is: the later ones follow from it.
pub(crate) fn remember(fault: impl FnOnce() -> Fault) {
    if let Memory::On(first) = &mut *lock(&MEMORY) {
        first.get_or_insert_with(fault);
    }
}

/// Forgets the first failure: what comes next has nothing to do with it.
pub(crate) fn forget() {
    if let Memory::On(first) = &mut *lock(&MEMORY) {
        *first = None;
    }
}
