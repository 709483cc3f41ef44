//! What most of these files use. Those that it takes from do without it, or there would be a circle.

pub(crate) use crate::checkout::{checkout, target_dir};
pub(crate) use crate::files::{entries, make, read, remove, size, write};
pub(crate) use crate::{command, lock::Lock, release::Release, workspace::Workspace};
pub(crate) use anyhow::{Context, Result, bail, ensure};
pub(crate) use clap::{Args, Subcommand};
pub(crate) use std::{env, fmt, fs, fs::File, io, os::unix::fs::symlink, thread, time::Instant};
pub(crate) use std::{ffi::OsStr, ffi::OsString, path::Path, path::PathBuf};
pub(crate) use std::{process::Command, process::Stdio};
