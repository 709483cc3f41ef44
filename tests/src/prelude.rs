//! What most of these files use of other crates.

pub use anyhow::{Context, Result, bail, ensure};
pub use nix::sys::signal::{Signal, kill};
pub use nix::unistd::Pid;
pub use serde_json::{Value, json};
pub use std::collections::{BTreeMap, BTreeSet};
pub use std::path::{Path, PathBuf};
pub use std::time::{Duration, Instant};
pub use std::{env, fs, process::Command, sync::Arc};
