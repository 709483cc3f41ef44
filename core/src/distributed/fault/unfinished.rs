//! Whether a group has exchanges that may never finish.

use std::sync::atomic::{AtomicBool, Ordering};

#[derive(Debug, Default)]
pub(crate) struct Unfinished {
    failed: AtomicBool,
    lost: AtomicBool,
    cancelled: AtomicBool,
    unawaited: AtomicBool,
}

impl Unfinished {
    /// One has failed, and the group cannot be used any more.
    pub(crate) fn set_failed(&self) {
        self.failed.store(true, Ordering::Relaxed);
    }

    /// One has failed because of another rank.
    pub(crate) fn set_lost(&self) {
        self.lost.store(true, Ordering::Relaxed);
        self.set_failed();
    }

    /// Nobody is to wait for anything here any more.
    pub(crate) fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
        self.set_lost();
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }

    /// One was not waited for.
    pub(crate) fn set_unawaited(&self) {
        self.unawaited.store(true, Ordering::Relaxed);
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }

    pub(crate) fn has_lost(&self) -> bool {
        self.lost.load(Ordering::Relaxed)
    }

    pub(crate) fn is_any(&self) -> bool {
        self.has_failed() || self.unawaited.load(Ordering::Relaxed)
    }
}
