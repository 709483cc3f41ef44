//! What most of these files use. Those that it takes from do without it, or there would be a circle. So does the
//! coordinator's state machine, whose imports show that it knows no process, file or socket.

pub(crate) use crate::protocol::connection::{Loss, Outgoing};
pub(crate) use crate::protocol::{End, GRACE, Node, Placement, Regroup, ToAgent, ToCoordinator};
pub(crate) use crate::{args::Args, console::say, port, protocol::beat_interval};
pub(crate) use anyhow::{Context, Result, anyhow, bail, ensure};
pub(crate) use nix::sys::signal::{Signal, killpg};
pub(crate) use std::collections::{BTreeMap, BTreeSet, VecDeque};
pub(crate) use std::io::{BufRead, ErrorKind, Read, Write};
pub(crate) use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
pub(crate) use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
pub(crate) use std::{cell::OnceCell, fs, fs::File, rc::Rc, sync::Arc, thread};
pub(crate) use std::{path::Path, path::PathBuf, time::Duration, time::Instant};
