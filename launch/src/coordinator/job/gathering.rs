//! How a job begins: nodes join until they are enough, or learn why they cannot.

use super::*;
use crate::coordinator::placement::places;

/// How long the coordinator goes on to refuse nodes of a job that cannot start.
const LINGER: Duration = Duration::from_secs(5);

impl Job {
    pub(super) fn join(&mut self, id: NodeId, node: Node, now: Instant) {
        let objection = self.terms.objection(&node, self.nodes.values());
        self.nodes.insert(id, node);
        match (&mut self.phase, objection) {
            (Phase::Refused { end, told, .. }, _) => {
                *told += 1;
                let end = end.clone();
                self.tell(id, ToAgent::End(end));
            }
            (Phase::Gathering { .. }, Some(reason)) if self.next_generation == 0 => {
                let end = End::because(reason);
                self.tell_all(&ToAgent::End(end.clone()));
                self.phase = Phase::Refused { end, told: self.nodes.len(), until: now + LINGER };
            }
            (_, Some(reason)) => self.turn_away(id, End::because(reason)),
            (Phase::Ending { again: false, .. }, None) => {
                self.turn_away(id, End::because("the job has ended".to_owned()));
            }
            (Phase::Gathering { .. }, None) => self.start_if_complete(now),
            (Phase::Running { is_settled: false, succeeded, causes, .. }, None)
                if self.group.len() + self.coming.len() < self.terms.own.nodes.max.into()
                    && succeeded.is_empty()
                    && causes.is_empty() =>
            {
                if !self.invite(id) {
                    let cause = Cause::new(name(None, &self.nodes[&id]), Kind::Joined, now);
                    self.end(&cause, true, now);
                }
            }
            _ => {
                let reason =
                    format!("waiting for a place in the job of --nnodes {}", self.terms.own.nodes);
                self.tell(id, ToAgent::Wait { reason });
            }
        }
    }

    /// Starts the ranks at once if no further node can come, and after the last call if some may.
    fn start_if_complete(&mut self, now: Instant) {
        let count = self.staying().len();
        let Phase::Gathering { last_call, .. } = &mut self.phase else { return };
        if count >= usize::from(self.terms.own.nodes.max) {
            self.start(now);
        } else if count >= usize::from(self.terms.own.nodes.min) && last_call.is_none() {
            *last_call = Some(now + self.terms.last_call_timeout);
        }
    }

    pub(super) fn start(&mut self, now: Instant) {
        let placements = places(&self.terms, &self.staying(), self.next_generation, self.restarts);
        if !placements.iter().any(|(id, _)| self.terms.is_own(&self.nodes[id])) {
            // Rank 0 is on the coordinator's host, whose own launcher has not joined yet.
            let until = now + self.terms.join_timeout;
            self.phase = Phase::Gathering { until, last_call: None, remind_at: None };
            return;
        }
        self.generation = self.next_generation;
        self.next_generation += 1;
        (self.mended, self.last_change) = (None, None);
        self.taking_part.clear();
        self.coming.clear();
        self.group = placements.iter().map(|(id, _)| *id).collect();
        self.phase = Phase::Running {
            finished: BTreeSet::new(),
            is_settled: false,
            succeeded: BTreeSet::new(),
            causes: Vec::new(),
            decide_at: None,
            asked: BTreeSet::new(),
        };
        let fixed_port = self.terms.fixed_port;
        self.actions.push(Action::Start { placements, fixed_port, waits: false });
    }

    pub(super) fn staying(&self) -> BTreeMap<NodeId, Node> {
        let stays = |(id, _): &(&NodeId, &Node)| !self.leaving.contains(id);
        self.nodes.iter().filter(stays).map(|(id, node)| (*id, node.clone())).collect()
    }

    pub(super) fn end_if_all_know(&mut self) {
        if let Phase::Refused { told, .. } = &self.phase
            && *told >= usize::from(self.terms.own.nodes.max)
            && self.nodes.is_empty()
        {
            self.phase = Phase::Over;
        }
    }

    /// Ends a single node that has joined the job but has no part in it.
    pub(super) fn turn_away(&mut self, id: NodeId, end: End) {
        self.tell(id, ToAgent::End(end));
        self.nodes.remove(&id);
    }
}
