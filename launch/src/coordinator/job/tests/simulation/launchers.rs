//! What the launchers of the simulated nodes do: as `attempt`, with the real seats, but with simulated processes.

use super::*;
use crate::{attempt::seats::Seats, protocol::Regroup};

pub(super) struct Node {
    pub(super) seats: Seats,
    pub(super) pids: Vec<Pid>,
    pub(super) placement: Placement,
    /// Whether its ranks run and none has been told to end.
    pub(super) runs: bool,
    pub(super) is_settled: bool,
    pub(super) failed: bool,
}

impl Simulation {
    pub(super) fn agent(&mut self, id: NodeId, message: ToAgent) {
        match message {
            _ if self.lost.contains(&id) => {}
            ToAgent::Start { placement, waits, .. } => self.start(id, placement, waits),
            ToAgent::Regroup(next) => self.regroup(id, next),
            ToAgent::Leave => {
                let Some(node) = self.nodes.get_mut(&id).filter(|node| node.runs) else { return };
                node.is_settled = true;
                self.end_replacements(id);
                let pids = self.nodes[&id].pids.clone();
                pids.into_iter().for_each(|pid| self.after(1, move |it| it.may_leave(pid)));
            }
            ToAgent::Done => {
                (self.is_over, self.has_succeeded) = (true, true);
                self.end_all(id);
                self.tell(id, ToCoordinator::Gone);
            }
            ToAgent::Notice => self.tell(id, ToCoordinator::Noticed),
            ToAgent::End(end) => {
                // Others are turned away.
                let has_part = self.job.group.contains(&id) && !self.job.leaving.contains(&id);
                if has_part && end.next.is_none() {
                    let (restarts, most) = (self.job.restarts, self.job.terms.own.max_restarts);
                    assert!(restarts == most, "{} after {restarts} restarts", end.reason);
                    self.is_over = true;
                }
                self.end_all(id);
                self.tell(id, ToCoordinator::Gone);
            }
            _ => {}
        }
    }

    fn start(&mut self, id: NodeId, placement: Placement, waits: bool) {
        let count = self.job.nodes[&id].ranks;
        let pids = (0..count).map(|local_rank| self.spawn(id, local_rank)).collect();
        let seats = Seats::new(count, !waits);
        let (runs, is_settled, failed) = (true, false, false);
        self.nodes.insert(id, Node { seats, pids, placement, runs, is_settled, failed });
        if !waits {
            // All go on from a checkpoint.
            self.safe = 0;
        }
    }

    fn spawn(&mut self, node: NodeId, local_rank: u16) -> Pid {
        let pid = self.processes.len();
        self.processes.push(Process::new(node, local_rank));
        self.within(100..600, move |it| it.takes_part(pid));
        pid
    }

    /// The node whose launcher still watches this process.
    pub(super) fn watched(&mut self, pid: Pid) -> Option<&mut Node> {
        let Process { node, local_rank, .. } = self.processes[pid];
        let node = self.nodes.get_mut(&node)?;
        (node.runs && node.pids[usize::from(local_rank)] == pid).then_some(node)
    }

    fn takes_part(&mut self, pid: Pid) {
        let Process { node: id, local_rank, lives, .. } = self.processes[pid];
        let Some(node) = self.watched(pid).filter(|_| lives) else { return };
        let (placement, has_place) = (node.placement.clone(), node.seats.has_place(local_rank));
        let claim = node.seats.take_part(local_rank);
        if has_place {
            self.tell_place(pid, &placement, local_rank, false);
        }
        if let Some(claim) = claim {
            self.tell(id, ToCoordinator::TakesPart(claim));
        }
    }

    fn tell_place(&mut self, pid: Pid, placement: &Placement, number: u16, is_loss: bool) {
        let place = Seated {
            generation: placement.generation,
            rank: placement.rank(number),
            world_size: placement.world_size,
            is_loss,
        };
        // The connection to a rank is a host's own, and keeps the order.
        self.after(1, move |it| it.hear(pid, place));
    }

    pub(super) fn ended(&mut self, id: NodeId, pid: Pid) {
        let Process { local_rank, ends_well, is_unneeded, .. } = self.processes[pid];
        let at = self.at(self.now);
        let Some(node) = self.watched(pid) else { return };
        let others_can_go_on = node.seats.all_take_part() && !node.is_settled;
        let (has_place, generation) = (node.seats.has_place(local_rank), node.placement.generation);
        node.seats.end(local_rank);
        if ends_well && has_place {
            node.is_settled = true;
            self.end_replacements(id);
            if others_can_go_on {
                self.tell(id, ToCoordinator::Settled { generation });
                self.tell_if_finished(id);
            }
        } else if !ends_well && (has_place || !is_unneeded) {
            node.failed = true;
            let failure = Failure::example(node.placement.rank(local_rank), Fault::Own, at);
            let message = match others_can_go_on {
                true => ToCoordinator::Lost { failure, claim: node.seats.claim(), generation },
                false => ToCoordinator::Failed(failure),
            };
            self.tell(id, message);
        }
        let node = &self.nodes[&id];
        if !node.failed && !node.pids.iter().any(|pid| self.processes[*pid].lives) {
            self.tell(id, ToCoordinator::Succeeded);
        }
    }

    pub(super) fn tell_if_finished(&mut self, id: NodeId) {
        let Node { seats, placement, .. } = &self.nodes[&id];
        let generation = placement.generation;
        if seats.have_finished(generation) {
            self.tell(id, ToCoordinator::Finished { generation });
        }
    }

    fn end_replacements(&mut self, id: NodeId) {
        let Node { seats, pids, .. } = &self.nodes[&id];
        let waiting = (0..).zip(pids).filter(|(local_rank, _)| !seats.has_place(*local_rank));
        for pid in waiting.map(|(_, pid)| *pid).collect::<Vec<_>>() {
            self.processes[pid].is_unneeded = true;
            self.end(pid);
        }
    }

    fn regroup(&mut self, id: NodeId, next: Regroup) {
        let Regroup { placement, claim, is_loss, .. } = next;
        let goes_on = |node: &&mut Node| node.runs && !node.is_settled;
        let Some(node) = self.nodes.get_mut(&id).filter(goes_on) else { return };
        node.failed = false;
        assert!(placement.restarts <= self.job.terms.own.max_restarts);
        let faults = self.faults + self.broken.len();
        assert!(placement.restarts as usize <= faults, "a restart without a fault");
        node.placement = placement.clone();
        for local_rank in node.seats.refill() {
            let pid = self.spawn(id, local_rank);
            self.nodes.get_mut(&id).unwrap().pids[usize::from(local_rank)] = pid;
        }
        for (number, local_rank) in self.nodes.get_mut(&id).unwrap().seats.take_places(claim) {
            let pid = self.nodes[&id].pids[usize::from(local_rank)];
            self.tell_place(pid, &placement, number, is_loss);
        }
    }

    pub(super) fn end_all(&mut self, id: NodeId) {
        if let Some(node) = self.nodes.get_mut(&id) {
            node.runs = false;
            node.pids.clone().into_iter().for_each(|pid| self.end(pid));
        }
    }
}
