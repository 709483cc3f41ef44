//! How a generation of ranks ends: who is the culprit, and whether another generation follows.

use super::*;
use crate::protocol::beat_interval;

/// How long the coordinator waits for the last ranks of a job. A node that is slower ends by itself.
const LAST_RANKS: Duration = GRACE.saturating_add(Duration::from_secs(2));

impl Job {
    /// Takes a note of why the ranks cannot go on; the other nodes have time to tell what they know.
    pub(super) fn note(&mut self, cause: Cause, now: Instant) {
        let Phase::Running { causes, decide_at, asked, .. } = &mut self.phase else { return };
        // A rank that had left its reason has ended now.
        causes.retain(|earlier| cause.process().is_none() || earlier.process() != cause.process());
        causes.push(cause);
        if decide_at.is_none() {
            *decide_at = Some(now + NOTICE + SLOW);
            asked.extend(self.group.iter().filter(|id| self.nodes.contains_key(id)));
            self.tell_group(&ToAgent::Notice);
        }
    }

    pub(super) fn decide(&mut self, now: Instant) {
        let overdue = self.overdue(now);
        let Phase::Running { causes, decide_at, .. } = &mut self.phase else { return };
        if let Some(lost_at) = overdue
            && causes.iter().all(|cause| cause.blames_another() || cause.is_silence())
        {
            *decide_at = Some(lost_at);
            return;
        }
        let causes = std::mem::take(causes);
        let others = self.group.len() - 1;
        let isolated = others > 1 && causes.iter().filter(|it| it.is_silence()).count() == others;
        let own = Cause::new(name(Some(0), &self.terms.own), Kind::Isolated, now);
        let Some(first) = causes.iter().min_by_key(|cause| cause.order()) else { return };
        let culprit = if isolated { &own } else { first };
        let own_is_there = self.nodes.values().any(|node| self.terms.is_own(node));
        let may_leave = |id| self.nodes.get(id).is_none_or(|node| self.terms.may_leave(node));
        let again = own_is_there
            && self.leaving.iter().all(may_leave)
            && (!self.counts(culprit) || self.may_restart());
        self.end(culprit, again, now);
    }

    /// Whether to start again after this counts as a restart. An elastic job expects nodes to come and go.
    fn counts(&self, cause: &Cause) -> bool {
        cause.failure().is_some() || !self.terms.own.nodes.elastic()
    }

    /// When a node that has missed its last beats will be lost: it may be the culprit of ranks that have lost others.
    fn overdue(&self, now: Instant) -> Option<Instant> {
        let limit = self.terms.heartbeat_timeout;
        let heard = self.group.iter().filter_map(|id| self.heard.get(id));
        let overdue = heard.filter(|heard| now.duration_since(**heard) > 2 * beat_interval(limit));
        let lost_at = *overdue.min()? + limit + NOTICE;
        (lost_at > now).then_some(lost_at)
    }

    /// Ends the ranks on all nodes, for the same reason on each.
    pub(super) fn end(&mut self, cause: &Cause, again: bool, now: Instant) {
        // Their ranks run as well.
        self.group.extend(std::mem::take(&mut self.coming));
        let next = again.then(|| {
            let counts = self.counts(cause);
            self.restarts += u32::from(counts);
            let (min, max) = (self.terms.own.nodes.min.into(), self.terms.own.nodes.max.into());
            let nodes = self.staying().len().min(max);
            let how = match nodes {
                _ if counts => format!("{}: ", self.counted()),
                nodes if nodes < min => String::new(),
                1 => "going on with 1 node: ".to_owned(),
                nodes => format!("going on with {nodes} nodes: "),
            };
            let what = format!("{how}starting all ranks again");
            if nodes < min { format!("{what} once {min} nodes are there") } else { what }
        });
        let end = End {
            reason: cause.sentence(),
            hint: self.hint(cause),
            culprit: cause.failure().map(|failure| failure.rank),
            code: cause.code(),
            next,
        };
        if again {
            self.tell_group(&ToAgent::End(end));
            self.wait_for_ranks(true, now);
        } else {
            self.finish(end, now);
        }
    }

    /// What helps if rank 0 could not open the port that is reserved for it.
    fn hint(&self, cause: &Cause) -> Option<String> {
        cause.failure().filter(|failure| failure.rank == 0 && failure.port_is_taken())?;
        let what = match self.terms.alone() {
            _ if self.terms.fixed_port.is_some() => return None,
            true => ": a program that binds it without SO_REUSEADDR needs --master-port",
            false => ", which must bind it with SO_REUSEADDR",
        };
        Some(format!("launch reserves the port for rank 0{what}"))
    }

    pub(super) fn finish(&mut self, end: End, now: Instant) {
        self.tell_all(&ToAgent::End(end));
        self.wait_for_ranks(false, now);
    }

    pub(super) fn wait_for_ranks(&mut self, again: bool, now: Instant) {
        let is_waited_for = |id: &NodeId| !again || self.group.contains(id);
        let nodes = self.nodes.keys().copied().filter(is_waited_for).collect();
        let until = now + if again { self.terms.join_timeout } else { LAST_RANKS };
        self.phase = Phase::Ending { nodes, again, until };
        self.go_on_if_ended(now);
    }

    /// Starts the next generation, or ends the job, once no rank is left of the last one.
    pub(super) fn go_on_if_ended(&mut self, now: Instant) {
        match &self.phase {
            Phase::Ending { nodes, .. } if !nodes.is_empty() => {}
            Phase::Ending { again: false, .. } => self.phase = Phase::Over,
            Phase::Ending { again: true, .. } => {
                self.group.clear();
                if self.staying().len() >= usize::from(self.terms.own.nodes.min) {
                    self.start(now);
                } else {
                    let until = now + self.terms.join_timeout;
                    self.phase = Phase::Gathering { until, last_call: None, remind_at: None };
                    self.tell_missing(now);
                }
            }
            _ => {}
        }
    }
}
