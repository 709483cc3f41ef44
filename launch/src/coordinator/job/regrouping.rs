//! How a generation follows another in the same processes: without a rank that is lost, or with one that is
//! new.

use std::collections::BTreeMap;
use std::time::Instant;

use super::{Action, Job, NodeId, Phase};
use crate::coordinator::cause::Cause;
use crate::coordinator::placement::places;
use crate::protocol::{Claim, Node};

impl Job {
    /// So many ranks of a node can be given new places. More than before, if one has taken another's place.
    pub(super) fn take_part(&mut self, id: NodeId, claim: Claim) {
        let joins = self.take_in(id);
        let before = self.taking_part.insert(id, claim);
        let has_more = before.is_some_and(|before| before.ranks < claim.ranks);
        if (joins || has_more) && self.can_regroup() {
            self.regroup(false, None);
        }
    }

    /// Starts the ranks of a node beside those that run. `false` if these cannot take others in.
    pub(super) fn invite(&mut self, id: NodeId) -> bool {
        if !self.can_regroup() {
            return false;
        }
        self.coming.insert(id);
        let there = self.group.iter().chain(&self.coming);
        let nodes = there.map(|id| (*id, self.nodes[id].clone())).collect();
        let mut placements = places(&self.terms, &nodes, self.next_generation, self.restarts);
        self.next_generation += 1;
        placements.retain(|(other, _)| *other == id);
        self.actions.push(Action::Start { placements, fixed_port: None, waits: true });
        true
    }

    /// A node that was invited is there. `false` for any other.
    fn take_in(&mut self, id: NodeId) -> bool {
        let joins = self.coming.remove(&id);
        self.group.extend(joins.then_some(id));
        joins
    }

    /// A node is lost or leaves. The ranks of the others go on, if all can; `false` if they cannot, or the job may not be so
    /// small.
    pub(super) fn go_on_without_node(&mut self, id: NodeId, cause: &Cause) -> bool {
        let group = self.group.clone();
        self.group.retain(|member| *member != id);
        let nodes = self.terms.own.nodes;
        let is_enough = nodes.elastic() && self.group.len() >= nodes.min.into();
        if !is_enough || !self.can_regroup() {
            self.group = group;
            return false;
        }
        self.taking_part.remove(&id);
        self.regroup(true, Some(format!("{}\n{}", cause.sentence(), self.ranks_left())));
        self.invite_waiting();
        true
    }

    /// Nodes that have waited for a place take those that are free now.
    fn invite_waiting(&mut self) {
        let is_elsewhere = |id: &NodeId| {
            self.group.contains(id) || self.coming.contains(id) || self.leaving.contains(id)
        };
        let waiting: Vec<_> = self.nodes.keys().copied().filter(|id| !is_elsewhere(id)).collect();
        let free = usize::from(self.terms.own.nodes.max) - self.group.len() - self.coming.len();
        waiting.into_iter().take(free).for_each(|id| {
            self.invite(id);
        });
    }

    fn ranks_left(&self) -> String {
        match self.taking_part.values().map(|claim| u32::from(claim.ranks)).sum() {
            1 => "1 rank goes on".into(),
            left => format!("{left} ranks go on"),
        }
    }

    /// A node has lost a rank, and so many can go on: with those of the other nodes, if all can.
    pub(super) fn go_on_without(&mut self, id: NodeId, cause: Cause, claim: Claim, now: Instant) {
        self.take_in(id);
        self.taking_part.insert(id, claim);
        if !self.can_regroup() || self.restarts >= self.terms.own.max_restarts {
            return self.note(cause, now);
        }
        self.restarts += 1;
        let (restarts, most) = (self.restarts, self.terms.own.max_restarts);
        let (cause, ranks) = (cause.sentence(), self.ranks_left());
        let reason = format!(
            "{cause}\nrestart {restarts} of {most}: {ranks}, and another one takes its place"
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
        let claim = |id: &NodeId| self.taking_part.get(id);
        succeeded.is_empty()
            && causes.is_empty()
            && self.group.iter().all(|id| self.nodes.contains_key(id) && claim(id).is_some())
            && self.group.first().and_then(claim).is_some_and(|claim| claim.ranks > 0)
    }

    fn regroup(&mut self, is_loss: bool, reason: Option<String>) {
        let nodes: BTreeMap<NodeId, Node> = self
            .group
            .iter()
            .map(|id| (*id, Node { ranks: self.taking_part[id].ranks, ..self.nodes[id].clone() }))
            .collect();
        let placed = places(&self.terms, &nodes, self.next_generation, self.restarts);
        self.next_generation += 1;
        let places =
            placed.into_iter().map(|(id, placement)| (id, placement, self.taking_part[&id]));
        self.actions.push(Action::Regroup {
            places: places.collect(),
            // The last generation's store may still have the one that a flag sets.
            fixed_port: None,
            is_loss,
            reason,
        });
    }
}
