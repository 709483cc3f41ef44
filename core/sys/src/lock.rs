//! Locking a mutex despite panics.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex even if a thread has panicked while holding it. For values that a panic leaves intact.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
