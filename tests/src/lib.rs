//! Runs the programs of this project as a user does, in real processes, and checks what they print
//! and leave behind. The tests are in `tests/`; this library is what they share.
//!
//! `cargo xtask test` builds the programs, sets Python up and runs everything.

pub mod async_update;
pub mod cluster;
pub mod commands;
pub mod digits;
mod ended;
pub mod errors;
pub mod fork_server;
mod forked;
pub mod hosts;
pub mod imagenet;
pub mod job;
mod members;
pub mod parity;
pub mod prelude;
pub mod programs;
pub mod progress;
pub mod python;
pub mod safetensors;
pub mod shared;
pub mod soak;
pub mod training;
pub mod wait;

// For what `run_by` expands to.
#[doc(hidden)]
pub use inventory;

pub use ended::{Ended, expect_texts};
pub use hosts::Hosts;
pub use job::{Job, Process, expect_all_succeed, expect_refusal, expect_refusals};
pub use python::python;
pub use run_by::run_by;
pub use shared::{Shared, printed, printed_and_written};
pub use training::Training;
