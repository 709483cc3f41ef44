//! What the nodes of a job must agree on.

use crate::{args::Args, protocol::Node};
use std::{collections::BTreeSet, time::Duration};

pub(crate) struct Terms {
    /// What node 0 says of itself.
    pub(crate) own: Node,
    pub(crate) heartbeat_timeout: Duration,
    /// As in `--rdzv-conf`, like the next.
    pub(crate) join_timeout: Duration,
    pub(crate) last_call_timeout: Duration,
    /// Rank 0's port, if launch does not choose it.
    pub(crate) fixed_port: Option<u16>,
}

impl Terms {
    /// The terms that node 0's flags set. `own` is what it brings.
    pub(crate) fn new(args: &Args, own: &Node) -> Self {
        Terms {
            own: own.clone(),
            heartbeat_timeout: Duration::from_secs(args.heartbeat_timeout),
            join_timeout: args.rdzv_conf.join_timeout,
            last_call_timeout: args.rdzv_conf.last_call_timeout,
            fixed_port: args.fixed_port().filter(|_| !args.several_nodes()),
        }
    }

    pub(crate) fn alone(&self) -> bool {
        self.own.nodes.max == 1
    }

    /// Whether this is the node of the coordinator itself.
    pub(crate) fn is_own(&self, node: &Node) -> bool {
        node.launcher == self.own.launcher
    }

    pub(crate) fn may_leave(&self, node: &Node) -> bool {
        self.own.nodes.elastic() && !self.is_own(node)
    }

    /// Why a node cannot take part, with both hosts and both values.
    pub(crate) fn objection<'a>(
        &'a self,
        node: &Node,
        mut others: impl Iterator<Item = &'a Node>,
    ) -> Option<String> {
        let own = &self.own;
        let different = |what: &str, here: String, there: String| {
            let (a, b) = (&own.host, &node.host);
            Some(format!("different {what}: {here} on node 0 ({a}), {there} on host {b}"))
        };
        if node.node_rank.is_some() != own.node_rank.is_some() {
            let backend = |node: &Node| if node.node_rank.is_some() { "static" } else { "c10d" };
            return different("--rdzv-backend", backend(own).into(), backend(node).into());
        }
        if node.nodes != own.nodes {
            return different("--nnodes", own.nodes.to_string(), node.nodes.to_string());
        }
        if node.max_restarts != own.max_restarts {
            let (here, there) = (own.max_restarts, node.max_restarts);
            return different("--max-restarts", here.to_string(), there.to_string());
        }
        if let (Some(here), Some(there)) = (&own.program, &node.program)
            && here != there
        {
            let short = |digest: &str| digest.chars().take(12).collect();
            let what = "programs (--rdzv-conf check_program=0 allows that), by their SHA-256";
            return different(what, short(here), short(there));
        }
        let rank = node.node_rank?;
        let twin = match rank {
            0 if !self.is_own(node) => Some(own),
            _ => others.find(|other| other.node_rank == Some(rank)),
        };
        let (twin, host) = (&twin?.host, &node.host);
        Some(format!("--node-rank {rank} twice: on host {twin} and on host {host}"))
    }

    pub(crate) fn missing<'a>(&self, there: impl Iterator<Item = &'a Node>) -> String {
        let there: Vec<&Node> = there.collect();
        let ranks: BTreeSet<u16> = there.iter().filter_map(|node| node.node_rank).collect();
        let hosts: Vec<&str> = there.iter().map(|node| node.host.as_str()).collect();
        let hosts = if hosts.is_empty() { "none".to_owned() } else { hosts.join(", ") };
        let missing = if self.own.node_rank.is_some() {
            let missing = (0..self.own.nodes.max).filter(|rank| !ranks.contains(rank));
            let missing: Vec<String> = missing.map(|rank| rank.to_string()).collect();
            let s = if missing.len() == 1 { "" } else { "s" };
            format!("node{s} {} of {}", missing.join(", "), self.own.nodes.max)
        } else {
            match usize::from(self.own.nodes.min).saturating_sub(there.len()) {
                0 => "node 0".to_owned(),
                1 => "1 more node".to_owned(),
                count => format!("{count} more nodes"),
            }
        };
        format!("{missing}; there are: {hosts}")
    }
}
