//! How the launchers of a job talk to each other.
//!
//! Node 0's launcher is the *coordinator*: it listens on the address where the nodes meet. The launcher of every node,
//! node 0 included, is an *agent*, which connects to it and keeps the connection for as long as the job lasts. Both
//! sides send JSON objects, one a line, of at most [`connection::MAX_LINE`] bytes. In a job of one node, both are in
//! one process, and call functions in place of sending anything.
//!
//! ```text
//! agent                                      coordinator
//! Hello     version, job, nonce         →
//!                                       ←    Challenge  nonce, proof
//! Join      proof, what the node is     →
//!                                       ←    Welcome    host, heartbeat timeout
//!                                       ←    Start      ranks, MASTER_PORT, generation
//! Failed    a rank's failure            →
//!                                       ←    Notice     to all: what do your ranks know of it?
//! Failed …, Noticed                     →
//!                                       ←    End        the culprit, exit code, whether to go on
//! Gone      its ranks have ended        →
//!                                       ←    Start …
//! TakesPart ranks, that can be moved    →
//! Lost      a rank; the others go on    →
//!                                       ←    Regroup    their new places
//! TakesPart with the one in its place   →
//!                                       ←    Regroup …
//!                                       ←    Start      of a node that joins: its ranks wait
//! TakesPart                             →
//!                                       ←    Regroup …
//! Finished  its ranks wait              →
//!                                       ←    Leave      once all ranks have finished
//! Succeeded                             →
//!                                       ←    Done
//! Beat      at any time, both ways
//! ```
//!
//! The proofs are HMAC-SHA256 over the job's ID and both nonces, under the job's secret
//! (`TCH_PARALLEL_SECRET`), so that neither side takes part in another's job. What follows is neither
//! encrypted nor signed: the network between the nodes must not be an attacker's.
//!
//! The first message of each side decides whether they understand each other. `Hello` has its version
//! in every version of the protocol, and `Refused` its reason. Whoever is refused, sends garbage, or
//! takes longer than [`handshake::PATIENCE`] to join, is disconnected.
//!
//! The connection is also how a loss is noticed. It closes when a launcher dies, and each side takes
//! the other for lost that sends nothing, not even a `Beat`, for the heartbeat timeout.

pub(crate) mod connection;
pub(crate) mod handshake;
pub(crate) mod proof;

use crate::{args::Nodes, failure::Failure};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The version of the protocol. It changes with every message that changes.
pub(crate) const VERSION: u32 = 5;

/// How long a rank has to end after a signal.
pub(crate) const GRACE: Duration = Duration::from_secs(3);

pub(crate) fn beat_interval(heartbeat_timeout: Duration) -> Duration {
    (heartbeat_timeout / 5).min(Duration::from_secs(1))
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum ToCoordinator {
    /// The first message: is this a launcher ([`VERSION`]), and of which job (`--rdzv-id`)? The coordinator's proof
    /// contains the nonce.
    Hello { version: u32, job: String, nonce: String },
    /// Asks for a place in the job, with the proof that this side knows the secret.
    Join { proof: String, node: Node },
    /// A rank has failed, and the others cannot go on.
    Failed(Failure),
    /// The ranks take part in a job whose ranks come and go, and so many can have a place in its next generation.
    TakesPart(Claim),
    /// One of them has failed in this generation, and so many can go on.
    Lost { failure: Failure, claim: Claim, generation: u32 },
    /// The group of this generation has failed, though no rank is known to have.
    Broken { generation: u32 },
    /// All ranks here that have a place in this generation have finished, and wait until the others have.
    Finished { generation: u32 },
    /// One of them has exited with code 0 before that. No rank can be replaced after this generation.
    Settled { generation: u32 },
    /// The answer to a `Notice`: the ranks have had their time or have all ended, and what they know has been told.
    Noticed,
    /// All ranks have ended with exit code 0.
    Succeeded,
    /// This launcher ends on its own, with this exit code: a signal has asked it to, or it cannot start its ranks.
    Stopped { reason: String, code: u8 },
    /// All ranks have ended, after an `End` or a signal.
    Gone,
    /// Still there.
    Beat,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum ToAgent {
    /// The answer to a `Hello`: a nonce for the agent's proof, and the proof that this side knows the secret.
    Challenge { nonce: String, proof: String },
    /// Takes no part in the job.
    Refused { reason: String },
    /// Has joined, and waits for `Start`: the coordinator's host and launcher, and node 0's `--heartbeat-timeout`,
    /// which holds for all.
    Welcome { host: String, launcher: String, heartbeat_timeout: u64 },
    /// Has no place in the job yet.
    Wait { reason: String },
    /// Starts the ranks, with a MASTER_PORT that none had before. Those that wait get their places by a `Regroup`.
    Start { placement: Placement, master_port: u16, waits: bool },
    /// Gives the ranks of a claim new places, and replaces those that have failed.
    Regroup(Regroup),
    /// All ranks have finished: they may end, and from now on none is replaced.
    Leave,
    /// Something has gone wrong somewhere: asks for what the ranks know of it.
    Notice,
    /// Ends the ranks.
    End(End),
    /// The job has succeeded on every node.
    Done,
    /// Still there.
    Beat,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Node {
    /// A random name of this launcher, so that the coordinator knows its own.
    pub(crate) launcher: String,
    pub(crate) host: String,
    /// `--node-rank`, unless nodes are numbered by arrival.
    pub(crate) node_rank: Option<u16>,
    pub(crate) nodes: Nodes,
    pub(crate) ranks: u16,
    pub(crate) max_restarts: u32,
    pub(crate) role: String,
    /// The program's SHA-256, unless it is not to be compared.
    pub(crate) program: Option<String>,
}

#[cfg(test)]
impl Node {
    pub(crate) fn example(node_rank: Option<u16>, host: &str, (min, max): (u16, u16)) -> Self {
        Node {
            launcher: host.to_owned(),
            host: host.to_owned(),
            node_rank,
            nodes: Nodes { min, max },
            ranks: 2,
            max_restarts: 1,
            role: "default".to_owned(),
            program: Some("0123456789abcdef".to_owned()),
        }
    }
}

/// How many ranks of a node can have a place in the next generation. Later ones of a node have higher numbers.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Claim {
    pub(crate) number: u32,
    pub(crate) ranks: u16,
}

/// The place of a node in the job, for one generation of ranks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Placement {
    /// How often ranks have been started before, for any reason.
    pub(crate) generation: u32,
    /// TORCHELASTIC_RESTART_COUNT: how often ranks have been started again after a failure.
    pub(crate) restarts: u32,
    /// GROUP_RANK.
    pub(crate) node_rank: u16,
    /// GROUP_WORLD_SIZE.
    pub(crate) nodes: u16,
    /// RANK of this node's first rank.
    pub(crate) first_rank: u32,
    pub(crate) world_size: u32,
    /// ROLE_RANK of this node's first rank.
    pub(crate) first_role_rank: u32,
    pub(crate) role_world_size: u32,
}

impl Placement {
    /// RANK of a local rank: each node has consecutive ranks.
    pub(crate) fn rank(&self, local_rank: u16) -> u32 {
        self.first_rank + u32::from(local_rank)
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Regroup {
    pub(crate) placement: Placement,
    pub(crate) master_port: u16,
    pub(crate) claim: Claim,
    /// Whether one of the last generation is gone, so that the others wait for it.
    pub(crate) is_loss: bool,
    pub(crate) reason: Option<String>,
}

/// The end of a generation of ranks, the same on every node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct End {
    /// What every launcher prints first: the culprit, and why.
    pub(crate) reason: String,
    pub(crate) hint: Option<String>,
    pub(crate) culprit: Option<u32>,
    /// The exit code, if the job does not go on.
    pub(crate) code: u8,
    pub(crate) next: Option<String>,
}

impl End {
    /// The end of a job that no rank has failed.
    pub(crate) fn because(reason: String) -> Self {
        End { reason, hint: None, culprit: None, code: 1, next: None }
    }
}
