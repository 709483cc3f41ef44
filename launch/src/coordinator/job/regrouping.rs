//! How a generation follows another in the same processes: without a rank that is lost, or with one that is new.

use super::{Action, Job, NodeId, Phase};
use crate::protocol::{Claim, Node, Placement, ToAgent};
use crate::{coordinator::cause::Cause, coordinator::placement::places};
use std::{collections::BTreeMap, time::Instant};

impl Job {
    /// So many ranks of a node can be given new places. More than before, if one has taken another's place.
    pub(super) fn take_part(&mut self, id: NodeId, claim: Claim) {
        let before = self.taking_part.insert(id, claim);
        let has_more = before.is_some_and(|before| before.ranks < claim.ranks);
        if !(has_more || self.coming.contains(&id)) || !self.can_regroup() {
            return;
        }
        self.group.extend(self.coming.take(&id));
        self.regroup(false, None, None);
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

    /// A node is lost or leaves. The others' ranks go on; `false` if not all can, or if too few nodes are left.
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
        let reason = format!("{}\n{}", cause.sentence(), self.ranks_left());
        self.regroup(true, Some((cause.clone(), false)), Some(reason));
        self.invite_waiting();
        true
    }

    /// Nodes that have waited for a place take those that are free now.
    pub(super) fn invite_waiting(&mut self) {
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

    /// A node has lost a rank of this generation. Those that it claims places for go on with the others, if all can.
    pub(super) fn go_on_without(
        &mut self,
        id: NodeId,
        cause: Cause,
        (claim, generation): (Claim, u32),
        now: Instant,
    ) {
        if self.coming.remove(&id) {
            // It was alone with that: its ranks have not met the others.
            self.turn_away(id, cause.end());
            return self.invite_waiting();
        }
        self.taking_part.insert(id, claim);
        let counts = self.mended != Some(generation);
        if !self.can_regroup() || (counts && !self.may_restart()) {
            return self.note(cause, now);
        }
        self.mended = self.mended.filter(|_| counts);
        self.restarts += u32::from(counts);
        let (cause_of, counted, left) = (cause.sentence(), self.counted(), self.ranks_left());
        let reason = format!("{cause_of}\n{counted}: {left}, and another one takes its place");
        self.regroup(true, Some((cause, counts)), Some(reason));
    }

    /// Ranks cannot reach each other, though all run.
    pub(super) fn mend(&mut self, generation: u32) {
        if generation == self.generation && self.can_regroup() && self.may_restart() {
            self.restarts += 1;
            self.mended = Some(generation);
            let reason = "the ranks have lost each other, but none has failed";
            self.regroup(true, None, Some(format!("{reason}\n{}: all go on", self.counted())));
        }
    }

    pub(super) fn may_restart(&self) -> bool {
        self.restarts < self.terms.own.max_restarts
    }

    pub(super) fn counted(&self) -> String {
        format!("restart {} of {}", self.restarts, self.terms.own.max_restarts)
    }

    /// Lets all ranks end once the last has finished. From then on, none is replaced.
    pub(super) fn let_go_if_finished(&mut self) {
        let Phase::Running { finished, is_settled, succeeded, causes, .. } = &mut self.phase else {
            return;
        };
        let mut group = self.group.iter();
        if causes.is_empty() && group.all(|id| finished.contains(id) || succeeded.contains(id)) {
            *is_settled = true;
            // Nobody is told twice.
            finished.clear();
            self.tell_group(&ToAgent::Leave);
        }
    }

    /// A rank of this generation has exited before the others have finished: its node joins no other, as `cause` says.
    pub(super) fn settle(&mut self, generation: u32, cause: Cause, now: Instant) {
        let Phase::Running { is_settled, .. } = &mut self.phase else { return };
        *is_settled = true;
        if generation != self.generation {
            // The others already wait for it in a later one, in vain.
            let (cause, counts) = self.last_change.take().unwrap_or((cause, false));
            self.restarts -= u32::from(counts);
            self.note(cause, now);
        }
    }

    /// Whether every node's ranks can go on in another generation, of which rank 0 is on node 0.
    fn can_regroup(&self) -> bool {
        let Phase::Running { is_settled, succeeded, causes, .. } = &self.phase else {
            return false;
        };
        let claim = |id: &NodeId| self.taking_part.get(id);
        let is_own = |id: &&NodeId| self.nodes.get(id).is_some_and(|node| self.terms.is_own(node));
        !is_settled
            && succeeded.is_empty()
            && causes.is_empty()
            && self.group.iter().all(|id| self.nodes.contains_key(id) && claim(id).is_some())
            && self.group.first().filter(is_own).and_then(claim).is_some_and(|it| it.ranks > 0)
    }

    /// `change` is the cause, if there is one, and whether it counted as a restart.
    fn regroup(&mut self, is_loss: bool, change: Option<(Cause, bool)>, reason: Option<String>) {
        let left =
            |id: &NodeId| Node { ranks: self.taking_part[id].ranks, ..self.nodes[id].clone() };
        let nodes: BTreeMap<NodeId, Node> = self.group.iter().map(|id| (*id, left(id))).collect();
        let placed = places(&self.terms, &nodes, self.next_generation, self.restarts);
        self.group = placed.iter().map(|(id, _)| *id).collect();
        (self.generation, self.last_change) = (self.next_generation, change);
        self.next_generation += 1;
        if let Phase::Running { finished, .. } = &mut self.phase {
            // A node without a rank in this generation has nothing to finish.
            let has_none = |id: &&NodeId| self.taking_part[id].ranks == 0;
            *finished = self.group.iter().filter(has_none).copied().collect();
        }
        let claimed = |(id, placement): (NodeId, Placement)| (id, placement, self.taking_part[&id]);
        let places = placed.into_iter().map(claimed).collect();
        self.actions.push(Action::Regroup { places, is_loss, reason });
    }
}
