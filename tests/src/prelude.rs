//! What most of these files use of other crates.

pub use anyhow::{Context, Result, bail, ensure};
pub use nix::sys::signal::{Signal, kill};
pub use nix::unistd::Pid;
pub use serde_json::{Value, json};
pub use std::{collections::BTreeMap, collections::BTreeSet, path::Path, path::PathBuf};
pub use std::{env, fs, process::Command, sync::Arc, time::Duration, time::Instant};
