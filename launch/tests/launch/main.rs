//! `launch` as a user runs it: real processes, small shell programs for ranks.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod arguments;
mod bad_input;
mod culprit;
mod elastic;
mod endings;
mod environment;
mod job;
mod master_port;
mod nodes;
mod output;
mod prelude;
mod replaced;
mod signals;
mod terminal;
