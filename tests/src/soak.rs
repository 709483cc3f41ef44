//! What a job over several hosts must survive, or end at in time: each fault of the table that
//! `cargo xtask soak` prints.

mod agreement;
mod culprit;
mod elastic;
mod kills;
mod network;
pub mod replaced;
mod restarts;
mod silence;
mod start_up;
mod torchrun;

use crate::programs::{ddp_mnist, example, launch};
use crate::training::{events, losses, wait_for_steps};
use crate::{Ended, Job, cluster::Cluster};
use anyhow::{Context, Result, bail, ensure};
use kills::{Victim, killed};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rand::{Rng, SeedableRng, rngs::StdRng};
use std::time::{Duration, Instant};
use std::{fs, path::Path, process::Command, thread::sleep};

/// One line of the table.
pub struct Line {
    pub name: &'static str,
    /// What happens to the job.
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

impl Line {
    /// A line without a limit, which is tried 36 times.
    const fn new(name: &'static str, trial: fn(&mut Trial) -> Result<Duration>) -> Self {
        Self { name, fault: "", goal: "", limit: None, trials: 36, trial }
    }

    const fn fault(self, fault: &'static str) -> Self {
        Self { fault, ..self }
    }

    const fn goal(self, goal: &'static str) -> Self {
        Self { goal, ..self }
    }

    const fn within(self, milliseconds: u64) -> Self {
        Self { limit: Some(Duration::from_millis(milliseconds)), ..self }
    }

    const fn times(self, trials: u32) -> Self {
        Self { trials, ..self }
    }
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

/// How large a trial is.
#[derive(Debug, Clone, Copy)]
pub struct Size {
    /// The ranks of each of the three nodes.
    pub ranks_per_node: usize,
    /// --heartbeat-timeout, in seconds.
    pub heartbeat_timeout: u16,
    /// How long the network is cut.
    pub partition: Duration,
    /// By how much each packet is late on a slow network.
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
        heartbeat_timeout: 2,
        partition: Duration::from_secs(1),
        delay: Duration::from_millis(30),
        loss: 0.05,
        reaped: PATIENCE,
    };
}

const NODES: usize = 3;

/// How long to wait for something that should have come long before.
const PATIENCE: Duration = Duration::from_secs(60);

pub const LINES: &[Line] = &[
    Line::new("killed-rank", |trial| killed(trial, Victim::Rank))
        .fault("kill -9 of one rank")
        .goal("all hosts end in under 5 s and name it, no orphan")
        .within(5_000),
    Line::new("killed-launcher", |trial| killed(trial, Victim::Launcher))
        .fault("kill -9 of one launcher")
        .goal("all hosts end in under 5 s and name its host, no orphan")
        .within(5_000),
    Line::new("killed-host", |trial| killed(trial, Victim::Host))
        .fault("kill -9 of all processes of one host")
        .goal("all hosts end in under 5 s and name it, no orphan")
        .within(5_000),
    Line::new("stopped-host", silence::stopped_host)
        .fault("SIGSTOP of all processes of one host")
        .goal(
            "the others end within --heartbeat-timeout (3 s) + 5 s and name it; \
             it ends when it wakes up",
        )
        .within(8_000),
    Line::new("link-down", silence::link_down)
        .fault("link of one host down")
        .goal("all end within --heartbeat-timeout (3 s) + 5 s, the others name it")
        .within(8_000),
    Line::new("delay", network::delay)
        .fault("200 ms delay at every host")
        .goal("trains to the end"),
    Line::new("loss", network::loss).fault("20 % loss at every host").goal("trains to the end"),
    Line::new("partition", network::partition)
        .fault("one host cut off for 5 s")
        .goal("waits, and then trains to the end"),
    Line::new("restarts", restarts::restart)
        .fault("kill -9 of a rank at a random moment, --max-restarts 3")
        .goal("weights equal to the bit to an undisturbed run")
        .times(20),
    Line::new("replaced", replaced::replaced)
        .fault("kill -9 of one or two of 4 ranks on one host, five times, --max-restarts 1000, elastic::run")
        .goal("the others' next step in under 0.3 s; every sample counts once; nothing stays behind")
        .within(300)
        .times(20),
    Line::new("replaced-hosts", |trial| replaced::hosts(trial, Signal::SIGKILL))
        .fault("elastic 1:3: kill -9 of all processes of one host, which comes again, twice, elastic::run")
        .goal("the others' next step in under 1 s; every sample counts once")
        .within(1_000)
        .times(20),
    Line::new("silent-hosts", |trial| replaced::hosts(trial, Signal::SIGSTOP))
        .fault("elastic 1:3: SIGSTOP of all processes of one host, twice, elastic::run")
        .goal("the others' next step within --heartbeat-timeout (3 s) + 0.5 s; every sample counts once")
        .within(3_500)
        .times(20),
    Line::new("elastic", elastic::nodes_come_and_go)
        .fault("elastic 1:3: a node killed, a node added, a node killed again")
        .goal("trains on in under 10 s each time; every sample of an epoch once")
        .within(10_000)
        .times(20),
    Line::new("uneven-nodes", agreement::uneven_nodes)
        .fault("1, 2 and 3 ranks on the nodes")
        .goal("trains as ranks 0 to 5 of 6"),
    Line::new("different-nnodes", agreement::different_nnodes)
        .fault("different --nnodes")
        .goal("refused in under 10 s, with one sentence on every host")
        .within(10_000),
    Line::new("same-node-rank", agreement::same_node_rank)
        .fault("same --node-rank twice")
        .goal("refused in under 10 s, with one sentence on every host")
        .within(10_000),
    Line::new("other-program", agreement::other_program)
        .fault("another version of the program on one host")
        .goal("refused in under 10 s, with one sentence on every host")
        .within(10_000),
    Line::new("disk-full", culprit::disk_full)
        .fault("disk full at rank 0's checkpoint (3 ranks on one host)")
        .goal("rank 0 and its reason named")
        .times(20),
    Line::new("out-of-memory", culprit::out_of_memory)
        .fault("out of memory on rank 0 (3 ranks on one host)")
        .goal("rank 0 and its reason named")
        .times(20),
    Line::new("torchrun", torchrun::lost_node)
        .fault("torchrun --nnodes 1:3, one of two nodes lost (on one host)")
        .goal("the rank that is left goes on from the checkpoint")
        .times(5),
    Line::new("start-up", start_up::more_and_more_ranks)
        .fault("8, 16, 32 and 64 ranks on one host")
        .goal("64 meet in under 2.5 s (on 2 cores), and in less than 10 times as long as 8")
        .within(2_500)
        .times(5),
];

/// A training that no trial sees the end of.
fn endless_training() -> Result<Command> {
    ddp_mnist(["--epochs", "100000", "--batch-size", "32", "--no-save", "--metrics", "metrics"])
}
