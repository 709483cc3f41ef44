//! Why the ranks of a job end: the culprits, and which of several it is.

use crate::failure::{Failure, Fault, NOTICED_BEFORE};
use crate::{protocol::End, protocol::Node, protocol::connection::Loss};
use std::time::{Duration, Instant};

#[derive(Clone)]
pub(crate) struct Cause {
    pub(crate) kind: Kind,
    /// The node concerned, as the user knows it; `None` for the only one.
    node: Option<String>,
    at: Instant,
}

#[derive(Clone)]
pub(crate) enum Kind {
    /// One of its ranks has failed.
    Failed(Failure),
    /// The connection to it is over.
    Lost(Loss),
    /// Its launcher ends by itself.
    Stopped { reason: String, code: u8 },
    /// It is the coordinator's own, and hears of no other.
    Isolated,
    /// It has joined.
    Joined,
    /// One of its ranks has exited with code 0, and the others wait for it in another generation.
    Settled,
}

impl Cause {
    /// What is known now of a node that has this name.
    pub(crate) fn new(node: Option<String>, kind: Kind, now: Instant) -> Self {
        let since = match &kind {
            Kind::Failed(failure) => now.saturating_duration_since(failure.at),
            Kind::Lost(Loss::Silent(time)) => *time,
            // The other nodes' ranks notice as soon as the coordinator does.
            Kind::Lost(Loss::Closed | Loss::Garbage) => NOTICED_BEFORE,
            Kind::Stopped { .. } | Kind::Isolated | Kind::Joined | Kind::Settled => Duration::ZERO,
        };
        Cause { kind, node, at: now.checked_sub(since).unwrap_or(now) }
    }

    /// How a rank has failed, unless it is a node that comes or goes.
    pub(crate) fn failure(&self) -> Option<&Failure> {
        if let Kind::Failed(failure) = &self.kind { Some(failure) } else { None }
    }

    pub(crate) fn process(&self) -> Option<(&Option<String>, i32)> {
        Some((&self.node, self.failure()?.pid))
    }

    pub(crate) fn blames_another(&self) -> bool {
        self.failure().is_some_and(|failure| failure.fault == Fault::Another)
    }

    pub(crate) fn is_silence(&self) -> bool {
        matches!(self.kind, Kind::Lost(Loss::Silent(_)))
    }

    /// The smallest is the one that explains the others.
    pub(crate) fn order(&self) -> (bool, Fault, Instant) {
        // A launcher that ends by itself says so before its ranks' ends are noticed anywhere.
        let stopped = matches!(self.kind, Kind::Stopped { .. });
        (!stopped, self.failure().map_or(Fault::Own, |failure| failure.fault), self.at)
    }

    pub(crate) fn code(&self) -> u8 {
        match &self.kind {
            Kind::Failed(failure) => failure.exit_code,
            Kind::Stopped { code, .. } => *code,
            Kind::Lost(_) | Kind::Isolated | Kind::Joined | Kind::Settled => 1,
        }
    }

    /// How one node ends while the others go on.
    pub(crate) fn end(&self) -> End {
        End { code: self.code(), ..End::because(self.sentence()) }
    }

    /// What every launcher prints.
    pub(crate) fn sentence(&self) -> String {
        let (colon, what) = match &self.kind {
            Kind::Failed(failure) => (":", failure.to_string()),
            Kind::Lost(loss) => ("", loss.to_string()),
            Kind::Stopped { reason, .. } => (":", reason.clone()),
            Kind::Isolated => ("", "has lost the connection to all other nodes".to_owned()),
            Kind::Joined => ("", "joins the job".to_owned()),
            Kind::Settled => ("", "has ended a rank that the others wait for".to_owned()),
        };
        self.node.as_ref().map_or(what.clone(), |node| format!("{node}{colon} {what}"))
    }
}

/// A node as the user knows it: by its rank, if it has one, and by its host. The only node of a job needs no name.
pub(crate) fn name(group_rank: Option<usize>, node: &Node) -> Option<String> {
    let rank = group_rank.or(node.node_rank.map(usize::from));
    (node.nodes.max > 1).then(|| match rank {
        Some(rank) => format!("node {rank} ({})", node.host),
        None => format!("a node on host {}", node.host),
    })
}
