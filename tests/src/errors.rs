//! What the error of a call says.

use std::fmt::Display;

/// Expects an error whose message contains this text.
#[track_caller]
pub fn expect_error<T>(result: Result<T, impl Display>, text: &str) {
    let message = message(result);
    assert!(message.contains(text), "{message}");
}

/// Expects an error whose message begins with this text.
#[track_caller]
pub fn expect_error_start<T>(result: Result<T, impl Display>, text: &str) {
    let message = message(result);
    assert!(message.starts_with(text), "{message}");
}

#[track_caller]
pub fn message<T>(result: Result<T, impl Display>) -> String {
    let Err(error) = result else { panic!("there is no error") };
    error.to_string()
}
