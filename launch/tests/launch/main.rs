//! `launch` as a user runs it: real processes, small shell programs for ranks.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod arguments;
mod bad_input;
mod culprit;
mod endings;
mod environment;
mod job;
mod master_port;
mod output;
mod signals;
mod terminal;
