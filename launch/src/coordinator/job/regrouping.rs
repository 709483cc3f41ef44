//! How a generation follows another in the same processes: without a rank that is lost, or with one that is
//! new.

use std::collections::BTreeMap;
use std::time::Instant;

use super::{Action, Job, NodeId, Phase};
use crate::coordinator::cause::Cause;
use crate::coordinator::placement::places;
use crate::protocol::Node;

impl Job {
    /// So many ranks of a node can be given new places. More than before, if one has taken another's place.
    pub(super) fn take_part(&mut self, id: NodeId, ranks: u16) {
        let before = self.taking_part.insert(id, ranks);
        if before.is_some_and(|before| before < ranks) && self.can_regroup() {
            self.regroup(false, None);
        }
    }

    /// A node has lost a rank, and so many can go on: with those of the other nodes, if all can.
    pub(super) fn go_on_without(&mut self, id: NodeId, cause: Cause, ranks: u16, now: Instant) {
        self.taking_part.insert(id, ranks);
        if !self.can_regroup() || self.restarts >= self.terms.own.max_restarts {
            return self.note(cause, now);
        }
        self.restarts += 1;
        let (restarts, most) = (self.restarts, self.terms.own.max_restarts);
        let left: u32 = self.taking_part.values().copied().map(u32::from).sum();
        let ranks = if left == 1 { "1 rank goes on".into() } else { format!("{left} ranks go on") };
        let reason = format!(
            "{}\nrestart {restarts} of {most}: {ranks}, and another one takes its place",
            cause.sentence()
        );
        self.regroup(true, Some(reason));
    }

    /// Ranks cannot reach each other, though all run.
    pub(super) fn mend(&mut self, generation: u32) {
        let is_current = generation + 1 == self.next_generation;
        if is_current && self.can_regroup() && self.restarts < self.terms.own.max_restarts {
            self.restarts += 1;
            let (restarts, most) = (self.restarts, self.terms.own.max_restarts);
            let reason = format!(
                "the ranks have lost each other, but none has failed\nrestart {restarts} of {most}: all go on"
            );
            self.regroup(true, Some(reason));
        }
    }

    /// Whether every node's ranks can go on in another generation, of which rank 0 is on node 0.
    fn can_regroup(&self) -> bool {
        let Phase::Running { succeeded, causes, .. } = &self.phase else { return false };
        let ranks = |id: &NodeId| self.taking_part.get(id).copied();
        succeeded.is_empty()
            && causes.is_empty()
            && self.group.iter().all(|id| self.nodes.contains_key(id) && ranks(id).is_some())
            && self.group.first().and_then(ranks).is_some_and(|ranks| ranks > 0)
    }

    fn regroup(&mut self, is_loss: bool, reason: Option<String>) {
        let ranks = |id: &NodeId| self.taking_part.get(id).copied().unwrap_or(0);
        let nodes: BTreeMap<NodeId, Node> = self
            .group
            .iter()
            .map(|id| (*id, Node { ranks: ranks(id), ..self.nodes[id].clone() }))
            .collect();
        let placed = places(&self.terms, &nodes, self.next_generation, self.restarts);
        self.next_generation += 1;
        let places = placed.into_iter().map(|(id, placement)| (id, placement, nodes[&id].ranks));
        self.actions.push(Action::Regroup {
            places: places.collect(),
            // The last generation's store may still have the one that a flag sets.
            fixed_port: None,
            is_loss,
            reason,
        });
    }
}
