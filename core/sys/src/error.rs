//! What libtorch says when it refuses.

use crate::ffi;
use std::ffi::{CStr, CString};
use std::fmt;
use std::ptr::NonNull;

/// The text of a C++ exception, without its backtrace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    message: String,
}

impl Error {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Error { message: message.into() }
    }

    /// libtorch's own words.
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

/// Turns the C ABI's status into a result.
pub(crate) fn check(status: ffi::Status) -> Result<(), Error> {
    if status.is_null() {
        return Ok(());
    }
    // SAFETY: a status that is not null is a NUL-terminated string from strdup, ours to free.
    let message = unsafe {
        let message = CStr::from_ptr(status).to_string_lossy().trim().to_owned();
        ffi::c10d_free(status.cast());
        message
    };
    Err(Error { message })
}

/// Turns a handle that a call has filled in into one that is known not to be null.
pub(crate) fn created<T>(status: ffi::Status, handle: *mut T) -> Result<NonNull<T>, Error> {
    check(status)?;
    NonNull::new(handle).ok_or_else(|| Error::new("the call succeeded but gave no handle"))
}

/// Text for the C ABI, which ends at the first NUL.
pub(crate) fn c_text(text: &str) -> Result<CString, Error> {
    CString::new(text).map_err(|_| Error::new(format!("{text:?} holds a NUL character")))
}
