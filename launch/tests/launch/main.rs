//! `launch` as a user runs it: real processes, small shell programs for ranks.

mod arguments;
mod bad_input;
mod endings;
mod environment;
mod job;
mod master_port;
mod output;
mod signals;
mod terminal;
