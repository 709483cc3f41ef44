//! Whether a group has exchanges that may never finish.

use std::sync::atomic::{AtomicBool, Ordering};

/// Exchanges of a group that may never finish.
#[derive(Debug, Default)]
pub(crate) struct Unfinished {
    failed: AtomicBool,
    unawaited: AtomicBool,
}

impl Unfinished {
    /// One has failed, and the group cannot be used any more.
    pub(crate) fn set_failed(&self) {
        self.failed.store(true, Ordering::Relaxed);
    }

    /// One was not waited for.
    pub(crate) fn set_unawaited(&self) {
        self.unawaited.store(true, Ordering::Relaxed);
    }

    /// Whether one has failed.
    pub(crate) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }

    pub(crate) fn is_any(&self) -> bool {
        self.has_failed() || self.unawaited.load(Ordering::Relaxed)
    }
}
