//! What a job over several hosts must survive, or end at in time: each fault of the table that
//! `cargo xtask soak` prints.

mod agreement;
mod culprit;
mod elastic;
mod kills;
mod network;
mod restarts;
mod silence;
mod start_up;
mod torchrun;

use std::process::Command;
use std::time::Duration;

use anyhow::Result;
use rand::SeedableRng;
use rand::rngs::StdRng;

use crate::programs::ddp_mnist;

/// One line of the table.
pub struct Line {
    /// How it is chosen.
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

/// What one trial is given, and what it leaves behind.
pub struct Trial {
    /// For moments and victims.
    pub rng: StdRng,
    /// How large it is.
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

/// The nodes of every job.
const NODES: usize = 3;

/// How long to wait for something that should have come long before.
const PATIENCE: Duration = Duration::from_secs(60);

const fn seconds(seconds: u64) -> Option<Duration> {
    Some(Duration::from_secs(seconds))
}

/// The table.
pub const LINES: &[Line] = &[
    Line {
        name: "killed-rank",
        fault: "kill -9 of one rank",
        goal: "all hosts end in under 5 s and name it, no orphan",
        limit: seconds(5),
        trials: 36,
        trial: kills::rank,
    },
    Line {
        name: "killed-launcher",
        fault: "kill -9 of one launcher",
        goal: "all hosts end in under 5 s and name its host, no orphan",
        limit: seconds(5),
        trials: 36,
        trial: kills::launcher,
    },
    Line {
        name: "killed-host",
        fault: "kill -9 of all processes of one host",
        goal: "all hosts end in under 5 s and name it, no orphan",
        limit: seconds(5),
        trials: 36,
        trial: kills::host,
    },
    Line {
        name: "stopped-host",
        fault: "SIGSTOP of all processes of one host",
        goal: "the others end within --heartbeat-timeout (3 s) + 5 s and name it; it ends when it wakes up",
        limit: seconds(8),
        trials: 36,
        trial: silence::stopped_host,
    },
    Line {
        name: "link-down",
        fault: "link of one host down",
        goal: "all end within --heartbeat-timeout (3 s) + 5 s, the others name it",
        limit: seconds(8),
        trials: 36,
        trial: silence::link_down,
    },
    Line {
        name: "delay",
        fault: "200 ms delay at every host",
        goal: "trains to the end",
        limit: None,
        trials: 36,
        trial: network::delay,
    },
    Line {
        name: "loss",
        fault: "20 % loss at every host",
        goal: "trains to the end",
        limit: None,
        trials: 36,
        trial: network::loss,
    },
    Line {
        name: "partition",
        fault: "one host cut off for 5 s",
        goal: "waits, and then trains to the end",
        limit: None,
        trials: 36,
        trial: network::partition,
    },
    Line {
        name: "restarts",
        fault: "kill -9 of a rank at a random moment, --max-restarts 3",
        goal: "weights equal to the bit to an undisturbed run",
        limit: None,
        trials: 20,
        trial: restarts::restart,
    },
    Line {
        name: "elastic",
        fault: "elastic 1:3: a node killed, a node added, a node killed again",
        goal: "trains on in under 10 s each time; every sample of an epoch once",
        limit: seconds(10),
        trials: 20,
        trial: elastic::nodes_come_and_go,
    },
    Line {
        name: "uneven-nodes",
        fault: "1, 2 and 3 ranks on the nodes",
        goal: "trains as ranks 0 to 5 of 6",
        limit: None,
        trials: 36,
        trial: agreement::uneven_nodes,
    },
    Line {
        name: "different-nnodes",
        fault: "different --nnodes",
        goal: "refused in under 10 s, with one sentence on every host",
        limit: seconds(10),
        trials: 36,
        trial: agreement::different_nnodes,
    },
    Line {
        name: "same-node-rank",
        fault: "same --node-rank twice",
        goal: "refused in under 10 s, with one sentence on every host",
        limit: seconds(10),
        trials: 36,
        trial: agreement::same_node_rank,
    },
    Line {
        name: "other-program",
        fault: "another version of the program on one host",
        goal: "refused in under 10 s, with one sentence on every host",
        limit: seconds(10),
        trials: 36,
        trial: agreement::other_program,
    },
    Line {
        name: "disk-full",
        fault: "disk full at rank 0's checkpoint (3 ranks on one host)",
        goal: "rank 0 and its reason named",
        limit: None,
        trials: 20,
        trial: culprit::disk_full,
    },
    Line {
        name: "out-of-memory",
        fault: "out of memory on rank 0 (3 ranks on one host)",
        goal: "rank 0 and its reason named",
        limit: None,
        trials: 20,
        trial: culprit::out_of_memory,
    },
    Line {
        name: "torchrun",
        fault: "torchrun --nnodes 1:3, one of two nodes lost (on one host)",
        goal: "the rank that is left goes on from the checkpoint",
        limit: None,
        trials: 5,
        trial: torchrun::lost_node,
    },
    Line {
        name: "start-up",
        fault: "8, 16, 32 and 64 ranks on one host",
        goal: "64 meet in under 2.5 s (on 2 cores), and in less than 10 times as long as 8",
        limit: Some(Duration::from_millis(2500)),
        trials: 5,
        trial: start_up::more_and_more_ranks,
    },
];

/// A training that no trial sees the end of.
fn endless_training() -> Result<Command> {
    ddp_mnist(["--epochs", "100000", "--batch-size", "32", "--no-save", "--metrics", "metrics"])
}
