//! What most of these tests use.

pub(crate) use anyhow::{Context, Result, bail, ensure};
pub(crate) use nix::sys::signal::{Signal, kill};
pub(crate) use serde_json::{Value, json};
pub(crate) use std::collections::{BTreeMap, BTreeSet};
pub(crate) use std::os::unix::fs::symlink;
pub(crate) use std::path::{Path, PathBuf};
pub(crate) use std::process::Command;
pub(crate) use std::sync::Arc;
pub(crate) use std::time::{Duration, Instant};
pub(crate) use std::{env, fs};
pub(crate) use tests::programs::*;
pub(crate) use tests::safetensors::Tensor;
pub(crate) use tests::training::{OUTPUTS, events, losses, stop_after_first_step, wait_for_steps};
pub(crate) use tests::{Ended, Hosts, Job, Process, Shared, Training};
pub(crate) use tests::{expect_all_succeed, expect_refusal, expect_refusals, expect_texts};
pub(crate) use tests::{printed, printed_and_written, python};

/// Tests that differ only in what they give to one and the same function.
macro_rules! cases {
    ($($(#[$about:meta])* fn $name:ident() = $call:expr;)+) => {$(
        $(#[$about])*
        #[test]
        fn $name() -> Result<()> {
            $call
        }
    )+};
}
pub(crate) use cases;
