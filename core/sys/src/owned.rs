//! What C++ has made and Rust owns.

use crate::ffi::Freed;
use std::{ops::Deref, ptr::NonNull};

#[derive(Debug)]
pub(crate) struct Owned<T: Freed>(NonNull<T>);

impl<T: Freed> Owned<T> {
    /// `None` for a null pointer.
    ///
    /// # Safety
    /// Otherwise C++ has made what it points to, and given up ownership of it.
    pub(crate) unsafe fn new(made: *mut T) -> Option<Self> {
        NonNull::new(made).map(Owned)
    }
}

impl<T: Freed> Deref for Owned<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: it lives until it is freed below.
        unsafe { self.0.as_ref() }
    }
}

impl<T: Freed> Drop for Owned<T> {
    fn drop(&mut self) {
        // SAFETY: it is ours and is not used again.
        unsafe { T::FREE(self.0.as_ptr()) }
    }
}
