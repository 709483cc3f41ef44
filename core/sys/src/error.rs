//! libtorch's errors, and what kind of failure they are.

use crate::ffi;
use std::ffi::CStr;
use std::fmt;
use std::ptr::NonNull;

/// The text of a C++ exception, without its backtrace, and the kind of failure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    kind: ErrorKind,
    message: String,
}

/// What kind of failure an [`Error`] is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Another rank or the store can no longer be reached.
    Connection,
    /// Something did not happen in time: a rank did not arrive, or a key was not set.
    Timeout,
    /// The call is wrong: an argument is invalid, or the ranks made different calls.
    Misuse,
    /// Anything else.
    Other,
}

impl ErrorKind {
    /// Classifies an error by its text, for errors whose type is lost or is one that libtorch uses
    /// for everything.
    fn of_text(message: &str) -> Self {
        let says = |signs: &[&str]| signs.iter().any(|sign| message.contains(sign));
        if says(&["imed out", "imeout"]) {
            ErrorKind::Timeout
        } else if says(&["gloo/", "NCCL", "ncclRemoteError", "onnection", "ocket"]) {
            ErrorKind::Connection
        } else if says(&["Detected mismatch", "appears not to match", "call different operations"])
        {
            ErrorKind::Misuse
        } else {
            ErrorKind::Other
        }
    }
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Error { kind, message: message.into() }
    }

    pub(crate) fn misuse(message: impl Into<String>) -> Self {
        Error::new(ErrorKind::Misuse, message)
    }

    pub(crate) fn no_handle() -> Self {
        Error::new(ErrorKind::Other, "the call succeeded but gave no handle")
    }

    /// An error of libtorch that did not pass through this crate, classified by its text.
    pub fn from_text(message: impl Into<String>) -> Self {
        let message = message.into();
        Error { kind: ErrorKind::of_text(&message), message }
    }

    /// libtorch's own message.
    pub fn message(&self) -> &str {
        &self.message
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

/// Turns the C ABI's status into a result.
pub(crate) fn check(status: ffi::Status) -> Result<(), Error> {
    if status.message.is_null() {
        return Ok(());
    }
    // SAFETY: a message that is not null is a NUL-terminated string from strdup, ours to free.
    let message = unsafe {
        let message = CStr::from_ptr(status.message).to_string_lossy().trim().to_owned();
        ffi::c10d_free(status.message.cast());
        message
    };
    Err(match status.kind {
        ffi::CONNECTION => Error::new(ErrorKind::Connection, message),
        ffi::TIMEOUT => Error::new(ErrorKind::Timeout, message),
        ffi::MISUSE => Error::new(ErrorKind::Misuse, message),
        _ => Error::from_text(message),
    })
}

/// Checks the status of a call that creates a handle, and that the handle is not null.
pub(crate) fn created<T>(status: ffi::Status, handle: *mut T) -> Result<NonNull<T>, Error> {
    check(status)?;
    NonNull::new(handle).ok_or_else(Error::no_handle)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::set_rng_state;
    use crate::{Store, TcpStoreOptions};
    use std::net::TcpListener;
    use std::time::Duration;
    use tch::{Kind, Tensor};

    #[test]
    fn a_text_is_classified_where_there_is_no_type() {
        let of = ErrorKind::of_text;
        let gloo = "[../third_party/gloo/gloo/transport/tcp/pair.cc:534] ";
        assert_eq!(of(&format!("{gloo}Connection closed by peer")), ErrorKind::Connection);
        assert_eq!(of(&format!("{gloo}Timed out waiting 300ms")), ErrorKind::Timeout);
        assert_eq!(of("Application timeout caused pair closure"), ErrorKind::Timeout);
        assert_eq!(of("NCCL error: remote process exited"), ErrorKind::Connection);
        assert_eq!(of("Detected mismatch between collectives on ranks"), ErrorKind::Misuse);
        assert_eq!(of("the ranks call different operations: …"), ErrorKind::Misuse);
        assert_eq!(of("lost connection to rank 1 (pid 2), which …"), ErrorKind::Connection);
        assert_eq!(of("mat1 and mat2 shapes cannot be multiplied"), ErrorKind::Other);
    }

    #[test]
    fn a_wrong_argument_is_a_misuse() {
        let state = Tensor::zeros([8], (Kind::Float, tch::Device::Cpu));
        assert_eq!(set_rng_state(None, &state).unwrap_err().kind(), ErrorKind::Misuse);
        assert_eq!(crate::arguments::c_text("a\0b").unwrap_err().kind(), ErrorKind::Misuse);
    }

    #[test]
    fn a_key_that_nobody_sets_is_a_timeout() {
        let wait = |store: Store| store.get("absent", Duration::from_millis(50)).unwrap_err();
        let (server, _) = tcp_stores();
        for store in [Store::hash().unwrap(), server] {
            let error = wait(store);
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
