//! What a job over several hosts must survive, or end at in time: each fault of the table that
//! `cargo xtask soak` prints.

mod elastic;
mod faults;
mod network;
pub mod replaced;
mod restarts;
mod torchrun;

use crate::programs::{ddp_mnist, example};
use crate::training::{events, losses, wait_for_steps};
use crate::{Ended, Job, cluster::Cluster, prelude::*};
use faults::{Fault, provoke};
use rand::{Rng, SeedableRng, rngs::StdRng};
use std::thread::sleep;

/// One line of the table.
pub struct Line {
    pub name: &'static str,
    pub fault: &'static str,
    /// What the job must do then.
    pub goal: &'static str,
    /// In which time, if it matters.
    pub limit: Option<Duration>,
    /// How often it is tried unless told otherwise.
    pub trials: u32,
    /// Tries it once. Returns the time that it took.
    pub trial: fn(&mut Trial) -> Result<Duration>,
}

/// What one trial is given, and what it leaves behind.
pub struct Trial {
    /// For moments and victims.
    pub rng: StdRng,
    pub size: Size,
    /// All that the launchers have printed.
    pub log: String,
}

impl Trial {
    /// The same number leads to the same victims and moments.
    pub fn new(number: u64, size: Size) -> Self {
        Self { rng: StdRng::seed_from_u64(number), size, log: String::new() }
    }
}

#[derive(Debug, Clone, Copy)]
pub struct Size {
    pub ranks_per_node: usize,
    /// --heartbeat-timeout, in seconds.
    pub heartbeat_timeout: u16,
    pub partition: Duration,
    pub delay: Duration,
    /// The part of the packets that a bad network loses.
    pub loss: f64,
    /// How long the last process may take to disappear after the launchers.
    pub reaped: Duration,
}

impl Size {
    /// For the table.
    pub const FULL: Self = Self {
        ranks_per_node: 2,
        heartbeat_timeout: 3,
        partition: Duration::from_secs(5),
        delay: Duration::from_millis(200),
        loss: 0.2,
        reaped: Duration::from_secs(1),
    };
    /// For a test, which may share the processor with others.
    pub const QUICK: Self = Self {
        ranks_per_node: 1,
        heartbeat_timeout: 5,
        partition: Duration::from_secs(1),
        delay: Duration::from_millis(30),
        loss: 0.05,
        reaped: PATIENCE,
    };
}

const NODES: usize = 3;

/// How long to wait for something that should have come long before.
const PATIENCE: Duration = Duration::from_secs(60);

const fn ms(milliseconds: u64) -> Option<Duration> {
    Some(Duration::from_millis(milliseconds))
}

/// In each line: its name and trial, the limit, how often it is tried, the fault and the goal.
macro_rules! lines {
    ($($name:literal, $trial:expr, $limit:expr, $trials:literal, $fault:literal => $goal:literal;)+) => {
        &[$(Line { name: $name, fault: $fault, goal: $goal, limit: $limit, trials: $trials, trial: $trial }),+]
    };
}

pub const LINES: &[Line] = lines! {
    "killed-rank", |trial| provoke(trial, Fault::KilledRank), ms(5_000), 36,
        "kill -9 of one rank" => "all hosts end in under 5 s and name it, no orphan";
    "killed-launcher", |trial| provoke(trial, Fault::KilledLauncher), ms(5_000), 36,
        "kill -9 of one launcher" => "all hosts end in under 5 s and name its host, no orphan";
    "killed-host", |trial| provoke(trial, Fault::KilledHost), ms(5_000), 36,
        "kill -9 of all processes of one host" => "all hosts end in under 5 s and name it, no orphan";
    "stopped-host", |trial| provoke(trial, Fault::StoppedHost), ms(8_000), 36,
        "SIGSTOP of all processes of one host"
        => "the others end within --heartbeat-timeout (3 s) + 5 s and name it; it ends when it wakes up";
    "link-down", |trial| provoke(trial, Fault::LinkDown), ms(8_000), 36,
        "link of one host down" => "all end within --heartbeat-timeout (3 s) + 5 s, the others name it";
    "delay", network::delay, None, 36, "200 ms delay at every host" => "trains to the end";
    "loss", network::loss, None, 36, "20 % loss at every host" => "trains to the end";
    "partition", network::partition, None, 36,
        "one host cut off for 5 s" => "waits, and then trains to the end";
    "restarts", restarts::restart, None, 20,
        "kill -9 of a rank at a random moment, --max-restarts 3"
        => "weights equal to the bit to an undisturbed run";
    "replaced", replaced::replaced, ms(300), 20,
        "kill -9 of one or two of 4 ranks on one host, five times, --max-restarts 1000, elastic::run"
        => "the others' next step in under 0.3 s; every sample counts once; nothing stays behind";
    "replaced-hosts", |trial| replaced::hosts(trial, Signal::SIGKILL), ms(1_000), 20,
        "elastic 1:3: kill -9 of all processes of one host, which comes again, twice, elastic::run"
        => "the others' next step in under 1 s; every sample counts once";
    "silent-hosts", |trial| replaced::hosts(trial, Signal::SIGSTOP), ms(3_500), 20,
        "elastic 1:3: SIGSTOP of all processes of one host, twice, elastic::run"
        => "the others' next step within --heartbeat-timeout (3 s) + 0.5 s; every sample counts once";
    "elastic", elastic::nodes_come_and_go, ms(10_000), 20,
        "elastic 1:3: a node killed, a node added, a node killed again"
        => "trains on in under 10 s each time; every sample of an epoch once";
    "torchrun", torchrun::lost_node, None, 5,
        "torchrun --nnodes 1:3, one of two nodes lost (on one host)"
        => "the rank that is left goes on from the checkpoint";
};

/// A training that no trial sees the end of.
fn endless_training() -> Result<Command> {
    ddp_mnist(["--epochs", "100000", "--batch-size", "32", "--no-save", "--metrics", "metrics"])
}
