//! What most of these tests use.

pub(crate) use crate::{job::*, nodes::Nodes};
pub(crate) use nix::sys::signal::{Signal, kill};
pub(crate) use nix::unistd::Pid;
pub(crate) use std::{fs, process::Command, time::Duration, time::Instant};
