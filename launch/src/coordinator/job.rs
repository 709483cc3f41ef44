//! What the coordinator decides: when the ranks start, why they end, and whether they start again.
//! Pure: it is told what happens and when, and returns what to tell the nodes.

mod ending;
mod gathering;
mod regrouping;
#[cfg(test)]
mod tests;

use super::cause::{Cause, Kind, name};
use super::terms::Terms;
use crate::protocol::connection::Loss;
use crate::protocol::{Claim, End, GRACE, Node, Placement, ToAgent, ToCoordinator};
use std::{collections::BTreeMap, collections::BTreeSet, time::Duration, time::Instant};
use tch_parallel_contract::NOTICE;

const PATIENCE: Duration = Duration::from_secs(10);

/// How much longer than `NOTICE` a node may take, on a loaded host, to say what its ranks know.
const SLOW: Duration = Duration::from_millis(500);

// A failed job ends within 5 s.
const _: () = assert!(NOTICE.as_millis() + SLOW.as_millis() + GRACE.as_millis() < 5000);

/// A node's connection. Later ones have higher numbers.
pub(crate) type NodeId = u64;

#[derive(Debug)]
pub(crate) enum Event {
    Joined(Node),
    Said(ToCoordinator),
    Lost(Loss),
}

#[derive(Debug, PartialEq)]
pub(crate) enum Action {
    /// Pass a message on.
    Tell(NodeId, ToAgent),
    /// Start these nodes' ranks, with a new port for rank 0 unless it is fixed. Those that wait get their places later.
    Start { placements: Vec<(NodeId, Placement)>, fixed_port: Option<u16>, waits: bool },
    /// Give the living ranks of these nodes new places, with a new port. The last generation's store may still hold a
    /// fixed one.
    Regroup { places: Vec<(NodeId, Placement, Claim)>, is_loss: bool, reason: Option<String> },
}

pub(crate) struct Job {
    terms: Terms,
    /// The nodes that are connected.
    nodes: BTreeMap<NodeId, Node>,
    /// Those whose ranks belong to this generation, by node rank. Others wait for a place.
    group: Vec<NodeId>,
    /// How many of a node's ranks can be given new places while they run, if it has said so.
    taking_part: BTreeMap<NodeId, Claim>,
    /// Those whose ranks start beside others that run.
    coming: BTreeSet<NodeId>,
    /// Those that end by themselves.
    leaving: BTreeSet<NodeId>,
    heard: BTreeMap<NodeId, Instant>,
    next_generation: u32,
    /// The one that runs.
    generation: u32,
    /// A generation whose ranks lost each other. That counted as a restart, also for a rank that was lost in it.
    mended: Option<u32>,
    /// Why the ranks last changed places, and whether that counted as a restart.
    last_change: Option<(Cause, bool)>,
    restarts: u32,
    phase: Phase,
    actions: Vec<Action>,
}

enum Phase {
    /// Too few nodes are there, or further ones may come until the last call.
    Gathering { until: Instant, last_call: Option<Instant>, remind_at: Option<Instant> },
    /// The ranks run. Once something has gone wrong, the nodes that are `asked` have until `decide_at`
    /// to say what they know of it. Once `is_settled`, no rank is replaced.
    Running {
        finished: BTreeSet<NodeId>,
        is_settled: bool,
        succeeded: BTreeSet<NodeId>,
        causes: Vec<Cause>,
        decide_at: Option<Instant>,
        asked: BTreeSet<NodeId>,
    },
    /// These nodes are still ending their ranks.
    Ending { nodes: BTreeSet<NodeId>, again: bool, until: Instant },
    /// The job cannot start: nodes that come late are told why, too.
    Refused { end: End, told: usize, until: Instant },
    /// Nothing is left to do.
    Over,
}

impl Job {
    pub(crate) fn new(terms: Terms, now: Instant) -> Self {
        let until = now + terms.join_timeout;
        Job {
            terms,
            nodes: BTreeMap::new(),
            group: Vec::new(),
            taking_part: BTreeMap::new(),
            coming: BTreeSet::new(),
            leaving: BTreeSet::new(),
            heard: BTreeMap::new(),
            next_generation: 0,
            generation: 0,
            mended: None,
            last_change: None,
            restarts: 0,
            phase: Phase::Gathering { until, last_call: None, remind_at: Some(now + PATIENCE) },
            actions: Vec::new(),
        }
    }

    pub(crate) fn handle(&mut self, id: NodeId, event: Event, now: Instant) -> Vec<Action> {
        self.heard.insert(id, now);
        match event {
            Event::Joined(node) => self.join(id, node, now),
            Event::Lost(loss) => self.lose(id, Kind::Lost(loss), now),
            Event::Said(message) if self.nodes.contains_key(&id) => self.hear(id, message, now),
            Event::Said(_) => {}
        }
        std::mem::take(&mut self.actions)
    }

    pub(crate) fn pass_time(&mut self, now: Instant) -> Vec<Action> {
        match &mut self.phase {
            Phase::Gathering { last_call: Some(at), .. } if *at <= now => self.start(now),
            Phase::Gathering { last_call: None, remind_at, .. }
                if remind_at.is_some_and(|at| at <= now) =>
            {
                *remind_at = None;
                self.tell_missing(now);
            }
            Phase::Gathering { last_call: None, until, .. } if *until <= now => {
                let limit = self.terms.join_timeout.as_secs();
                let missing = self.terms.missing(self.nodes.values());
                let reason = format!("waited {limit} s (join_timeout) in vain for {missing}");
                self.finish(End::because(reason), now);
            }
            Phase::Running { decide_at: Some(at), asked, .. } if *at <= now || asked.is_empty() => {
                self.decide(now);
            }
            Phase::Ending { until, again: true, nodes } if *until <= now => {
                let late = nodes.iter().filter_map(|id| Some(self.nodes.get(id)?.host.as_str()));
                let late = late.collect::<Vec<_>>().join(", ");
                self.finish(End::because(format!("the ranks have not ended on {late}")), now);
            }
            Phase::Ending { until, .. } | Phase::Refused { until, .. } if *until <= now => {
                self.phase = Phase::Over;
            }
            _ => {}
        }
        std::mem::take(&mut self.actions)
    }

    pub(crate) fn due(&self) -> Option<Instant> {
        match &self.phase {
            Phase::Gathering { until, last_call, remind_at } => {
                Some(last_call.unwrap_or_else(|| remind_at.unwrap_or(*until).min(*until)))
            }
            Phase::Running { decide_at, .. } => *decide_at,
            Phase::Ending { until, .. } | Phase::Refused { until, .. } => Some(*until),
            Phase::Over => None,
        }
    }

    /// Whether nobody needs the coordinator any more.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Over)
    }

    fn lose(&mut self, id: NodeId, kind: Kind, now: Instant) {
        let rank = self.node_rank(id);
        self.heard.remove(&id);
        let Some(node) = self.nodes.remove(&id) else { return };
        let was_leaving = self.leaving.remove(&id);
        self.coming.remove(&id);
        let cause = Cause::new(name(rank, &node), kind, now);
        // A host that was stopped or cut off may find this when it is back.
        self.tell(id, ToAgent::End(End::because(cause.sentence())));
        match &mut self.phase {
            Phase::Gathering { .. } | Phase::Ending { again: true, .. }
                if self.terms.is_own(&node) =>
            {
                self.end(&cause, false, now);
            }
            Phase::Gathering { last_call, .. } => {
                if self.nodes.len() < usize::from(self.terms.own.nodes.min) {
                    *last_call = None;
                    self.tell_all(&ToAgent::Wait { reason: cause.sentence() });
                    self.tell_missing(now);
                }
            }
            Phase::Running { .. } if rank.is_none() => self.invite_waiting(),
            Phase::Running { .. } if was_leaving => {}
            Phase::Running { asked, .. } => {
                asked.remove(&id);
                if !self.go_on_without_node(id, &cause) {
                    self.note(cause, now);
                }
            }
            Phase::Ending { nodes, again, .. } => {
                nodes.remove(&id);
                if *again && rank.is_some() && !was_leaving {
                    self.tell_all(&ToAgent::Wait { reason: cause.sentence() });
                }
                self.go_on_if_ended(now);
            }
            Phase::Refused { .. } => self.end_if_all_know(),
            Phase::Over => {}
        }
    }

    fn hear(&mut self, id: NodeId, message: ToCoordinator, now: Instant) {
        let rank = self.node_rank(id);
        let node = &self.nodes[&id];
        let cause = |kind| Cause::new(name(rank, node), kind, now);
        match (message, &mut self.phase) {
            (ToCoordinator::Failed(failure), Phase::Running { .. }) => {
                self.note(cause(Kind::Failed(failure)), now);
            }
            (ToCoordinator::TakesPart(claim), Phase::Running { .. }) => self.take_part(id, claim),
            (ToCoordinator::Lost { failure, claim, generation }, Phase::Running { .. }) => {
                self.go_on_without(id, cause(Kind::Failed(failure)), (claim, generation), now);
            }
            (ToCoordinator::Broken { generation }, Phase::Running { .. }) => self.mend(generation),
            (ToCoordinator::Finished { generation }, Phase::Running { finished, .. })
                if generation == self.generation =>
            {
                finished.insert(id);
                self.let_go_if_finished();
            }
            (ToCoordinator::Settled { generation }, Phase::Running { .. }) => {
                self.settle(generation, cause(Kind::Settled), now);
            }
            (ToCoordinator::Noticed, Phase::Running { asked, .. }) => {
                asked.remove(&id);
            }
            (ToCoordinator::Succeeded, Phase::Running { succeeded, causes, .. }) => {
                succeeded.insert(id);
                if causes.is_empty() && self.group.iter().all(|id| succeeded.contains(id)) {
                    self.tell_all(&ToAgent::Done);
                    self.wait_for_ranks(false, now);
                } else {
                    self.let_go_if_finished();
                }
            }
            (ToCoordinator::Stopped { reason, code }, _) => {
                let cause = cause(Kind::Stopped { reason, code });
                let has_part = rank.is_some() || self.group.is_empty();
                let is_needed = has_part && !self.terms.may_leave(node);
                self.leaving.insert(id);
                if rank.is_some() && !is_needed && self.go_on_without_node(id, &cause) {
                    // Nobody else tells its launcher, if its ranks have failed meanwhile, that it may end.
                    return self.tell(id, ToAgent::End(cause.end()));
                }
                match &mut self.phase {
                    Phase::Refused { .. } | Phase::Ending { again: false, .. } => {}
                    // Nobody else is to be told, and a failure that came before is the reason.
                    Phase::Ending { .. } if self.terms.alone() => {}
                    Phase::Running { causes, .. } if rank.is_some() => {
                        if causes.is_empty() || !self.terms.alone() {
                            causes.push(cause);
                        }
                        self.decide(now);
                    }
                    _ if is_needed => self.end(&cause, false, now),
                    _ if rank.is_none() => self.lose(id, cause.kind, now),
                    _ => {}
                }
            }
            (ToCoordinator::Gone, phase) => {
                if let Phase::Ending { nodes, .. } = phase {
                    nodes.remove(&id);
                }
                if self.leaving.remove(&id) || matches!(self.phase, Phase::Refused { .. }) {
                    self.nodes.remove(&id);
                }
                self.go_on_if_ended(now);
                self.end_if_all_know();
            }
            _ => {}
        }
    }

    fn node_rank(&self, id: NodeId) -> Option<usize> {
        self.group.iter().position(|member| *member == id)
    }

    fn tell(&mut self, id: NodeId, message: ToAgent) {
        self.actions.push(Action::Tell(id, message));
    }

    fn tell_group(&mut self, message: &ToAgent) {
        let there = self.group.iter().filter(|id| self.nodes.contains_key(id));
        self.actions.extend(there.map(|id| Action::Tell(*id, message.clone())));
    }

    /// Tells all nodes for whom they wait, and how long.
    fn tell_missing(&mut self, now: Instant) {
        let Phase::Gathering { until, .. } = self.phase else { return };
        let left = until.saturating_duration_since(now).as_secs_f64().ceil();
        let missing = self.terms.missing(self.nodes.values());
        self.tell_all(&ToAgent::Wait { reason: format!("waiting at most {left} s for {missing}") });
    }

    fn tell_all(&mut self, message: &ToAgent) {
        self.actions.extend(self.nodes.keys().map(|id| Action::Tell(*id, message.clone())));
    }
}
