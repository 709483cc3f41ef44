//! libtorch's errors. What kind of failure each is, `csrc/error_kind.cpp` has decided where it was caught.

use crate::{ffi, ffi::ErrorKind, ffi::Freed, ffi::Text, owned::Owned};
use std::ptr::{NonNull, null_mut};
use std::{ffi::CStr, ffi::CString, fmt, panic::AssertUnwindSafe, panic::catch_unwind};
use tch::Tensor;

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The text of a C++ exception, without its backtrace, and the kind of failure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    kind: ErrorKind,
    message: String,
    pub(crate) missing: Vec<usize>,
}

impl Error {
    /// An error that did not come from libtorch.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Error { kind, message: message.into(), missing: Vec::new() }
    }

    pub(crate) fn misuse(message: impl Into<String>) -> Self {
        Error::new(ErrorKind::Misuse, message)
    }

    pub(crate) fn no_handle() -> Self {
        Error::new(ErrorKind::Other, "the call succeeded but gave no handle")
    }

    /// libtorch's own message.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The positions of the parameters without a gradient, for [`ErrorKind::Unfinished`].
    pub fn missing(&self) -> &[usize] {
        &self.missing
    }

    /// What kind of failure this is.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

/// For what a hook of the caller's refuses.
impl<T: Into<String>> From<T> for Error {
    fn from(message: T) -> Self {
        Error::new(ErrorKind::Other, message)
    }
}

/// Turns the C ABI's status into a result.
pub(crate) fn check(status: ffi::Status) -> Result<()> {
    if status.message.is_null() {
        return Ok(());
    }
    // SAFETY: a message that is not null is a NUL-terminated string from strdup, ours to free.
    let message = unsafe {
        let message = CStr::from_ptr(status.message).to_string_lossy().trim().to_owned();
        ffi::c10d_free(status.message.cast());
        message
    };
    Err(Error::new(status.kind, message))
}

/// Runs a function that C++ has called, and turns its error or panic into the C ABI's status: no panic
/// may unwind into C++. `what` names the function.
pub(crate) fn answer(what: &str, body: impl FnOnce() -> Result<()>) -> ffi::Status {
    let error = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => return ffi::Status { message: null_mut(), kind: ErrorKind::Other },
        Ok(Err(error)) => error,
        Err(panic) => {
            let literal = panic.downcast_ref::<&str>().copied();
            let said = panic.downcast_ref::<String>().map(String::as_str).or(literal);
            format!("{what} panicked: {}", said.unwrap_or("without a message")).into()
        }
    };
    let message = CString::new(error.message.replace('\0', " ")).unwrap_or_default();
    // C++ frees the copy.
    ffi::Status { message: ffi::c10d_copy_text(Text::new(&message)), kind: error.kind }
}

/// What a call writes.
pub(crate) fn written<T: Default>(call: impl FnOnce(&mut T) -> ffi::Status) -> Result<T> {
    let mut value = T::default();
    check(call(&mut value))?;
    Ok(value)
}

/// The handle that a call writes.
pub(crate) fn created<T: Freed>(call: impl FnOnce(&mut *mut T) -> ffi::Status) -> Result<Owned<T>> {
    let mut made = null_mut();
    check(call(&mut made))?;
    // SAFETY: the call has made it and given up ownership of it.
    unsafe { Owned::new(made) }.ok_or_else(Error::no_handle)
}

/// The new tensor whose address a call writes.
pub(crate) fn created_tensor(
    call: impl FnOnce(&mut *mut ffi::Tensor) -> ffi::Status,
) -> Result<Tensor> {
    let mut made = null_mut();
    check(call(&mut made))?;
    let tensor = NonNull::new(made).ok_or_else(Error::no_handle)?;
    // SAFETY: the call has made this at::Tensor with `new` and given up ownership of it.
    Ok(unsafe { Tensor::from_ptr(tensor.as_ptr().cast()) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Store, TcpStoreOptions, random::set_rng_state};
    use std::{net::TcpListener, time::Duration};
    use tch::Kind;

    #[test]
    fn a_wrong_argument_is_a_misuse() {
        let state = Tensor::zeros([8], (Kind::Float, tch::Device::Cpu));
        assert_eq!(set_rng_state(None, &state).unwrap_err().kind(), ErrorKind::Misuse);
        assert_eq!(crate::arguments::c_text("a\0b").unwrap_err().kind(), ErrorKind::Misuse);
    }

    #[test]
    fn a_key_that_nobody_sets_is_a_timeout() {
        let (server, _) = tcp_stores();
        for store in [Store::hash().unwrap(), server] {
            let error = store.get("absent", Duration::from_millis(50)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
        }
    }

    #[test]
    fn a_server_that_has_ended_is_a_connection_error() {
        let (server, client) = tcp_stores();
        drop(server);
        let error = client.add("steps", 1).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Connection, "{error}");
    }

    /// A server and its client.
    fn tcp_stores() -> (Store, Store) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = listener.local_addr().unwrap();
        let store = |listener| {
            let timeout = Duration::from_secs(10);
            Store::tcp(TcpStoreOptions { server, world_size: 2, listener, timeout }).unwrap()
        };
        let server = store(Some(listener));
        (server, store(None))
    }
}
