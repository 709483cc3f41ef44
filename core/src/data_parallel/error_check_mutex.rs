//! A mutex that refuses a thread that holds it already: what POSIX calls an error-checking mutex.

use std::sync::{Mutex, MutexGuard};
use std::thread::{self, ThreadId};

pub(super) struct ErrorCheckMutex<T> {
    value: Mutex<T>,
    /// The thread that has locked the value.
    owner: Mutex<Option<ThreadId>>,
}

impl<T> ErrorCheckMutex<T> {
    pub(super) fn new(value: T) -> Self {
        ErrorCheckMutex { value: Mutex::new(value), owner: Mutex::new(None) }
    }

    /// Waits while another thread has the value. `None` if this thread has it.
    pub(super) fn lock(&self) -> Option<ErrorCheckGuard<'_, T>> {
        if self.is_locked_by_this_thread() {
            return None;
        }
        let value = lock(&self.value);
        *lock(&self.owner) = Some(thread::current().id());
        Some(ErrorCheckGuard { value, owner: &self.owner })
    }

    pub(super) fn is_locked_by_this_thread(&self) -> bool {
        *lock(&self.owner) == Some(thread::current().id())
    }
}

#[derive(Debug)]
pub(super) struct ErrorCheckGuard<'a, T> {
    pub(super) value: MutexGuard<'a, T>,
    owner: &'a Mutex<Option<ThreadId>>,
}

impl<T> Drop for ErrorCheckGuard<'_, T> {
    fn drop(&mut self) {
        // The fields, and so the value's lock, are released after this.
        *lock(self.owner) = None;
    }
}

// A replica that has panicked is as good as before, because its variables are refreshed before it is used again.
pub(super) use tch_parallel_base::lock;
