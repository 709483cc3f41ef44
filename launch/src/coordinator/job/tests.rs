//! What the coordinator decides, one rule a test. Time is a number of seconds, and node 0 has the connection 0.

mod elastic;
mod ending;
mod gathering;
mod regrouping;
mod simulation;

use super::*;
use crate::failure::{Failure, Fault};

/// A node, its place, and how many of its ranks have one.
type Regrouped = (NodeId, Placement, Claim);

fn terms(own: Node, last_call_timeout: Duration) -> Terms {
    let [heartbeat_timeout, join_timeout] = [15, 600].map(Duration::from_secs);
    Terms { own, heartbeat_timeout, join_timeout, last_call_timeout, fixed_port: None }
}

struct Scene {
    job: Job,
    begin: Instant,
    nodes: (u16, u16),
    told: Vec<(NodeId, ToAgent)>,
    started: Vec<Vec<(NodeId, Placement)>>,
    /// For each generation, whether the others wait for a rank, and each node's place and number of ranks.
    regrouped: Vec<(bool, Vec<Regrouped>)>,
    asked: Vec<(NodeId, Instant)>,
    /// The node that does not answer a notice.
    busy: Option<NodeId>,
}

impl Scene {
    fn new(nodes: (u16, u16)) -> Self {
        let own = Node::example((nodes.0 == nodes.1).then_some(0), "h0", nodes);
        let begin = Instant::now();
        let job = Job::new(terms(own, Duration::from_secs(30)), begin);
        let (told, started, regrouped, asked) = Default::default();
        Scene { job, begin, nodes, told, started, regrouped, asked, busy: None }
    }

    /// A job of these nodes that runs at 0 s.
    fn running(count: u16) -> Self {
        let mut scene = Scene::new((count, count));
        (0..count).for_each(|id| scene.join(id, 0.0));
        assert_eq!(scene.started.len(), 1);
        scene
    }

    /// An elastic job of these nodes that runs at 0 s.
    fn elastic(count: u16, nodes: (u16, u16)) -> Self {
        let mut scene = Scene::new(nodes);
        (0..count).for_each(|id| scene.join(id, -30.0));
        scene.pass(0.0);
        assert_eq!(scene.started.len(), 1);
        scene
    }

    fn at(&self, seconds: f64) -> Instant {
        // Times before 0 s are those before the ranks start.
        self.begin + Duration::from_secs_f64(seconds + 100.0)
    }

    fn perform(&mut self, actions: Vec<Action>, now: Instant) {
        for action in actions {
            match action {
                Action::Tell(id, message) => {
                    if message == ToAgent::Notice && self.busy != Some(id) {
                        self.asked.push((id, now));
                    }
                    self.told.push((id, message));
                }
                Action::Start { placements, .. } => self.started.push(placements),
                Action::Regroup { places, is_loss, .. } => self.regrouped.push((is_loss, places)),
            }
        }
    }

    fn event(&mut self, id: NodeId, event: Event, at: f64) {
        let now = self.at(at);
        let actions = self.job.handle(id, event, now);
        self.perform(actions, now);
    }

    /// Nodes that have got a notice answer it once their ranks have had their time.
    fn pass(&mut self, at: f64) {
        let now = self.at(at);
        for (id, _) in self.asked.extract_if(.., |(_, asked)| *asked + NOTICE <= now) {
            self.job.handle(id, Event::Said(ToCoordinator::Noticed), now);
        }
        let actions = self.job.pass_time(now);
        self.perform(actions, now);
    }

    fn join(&mut self, id: u16, at: f64) {
        self.come_back(id, id.into(), at);
    }

    /// The node with this rank joins, over this connection.
    fn come_back(&mut self, rank: u16, id: NodeId, at: f64) {
        let node_rank = self.job.terms.own.node_rank.map(|_| rank);
        let node = Node::example(node_rank, &format!("h{rank}"), self.nodes);
        self.event(id, Event::Joined(node), at);
    }

    /// A node is lost. What it is told itself is forgotten.
    fn lose(&mut self, id: NodeId, loss: Loss, at: f64) {
        self.event(id, Event::Lost(loss), at);
        self.told.retain(|(told, _)| *told != id);
    }

    fn say(&mut self, id: NodeId, message: ToCoordinator, at: f64) {
        self.event(id, Event::Said(message), at);
    }

    fn fail(&mut self, id: NodeId, rank: u32, fault: Fault, at: f64) {
        self.say(id, ToCoordinator::Failed(Failure::example(rank, fault, self.at(at))), at);
    }

    fn gone(&mut self, ids: &[NodeId], at: f64) {
        ids.iter().for_each(|id| self.say(*id, ToCoordinator::Gone, at));
    }

    fn stop(&mut self, id: NodeId, at: f64) {
        let reason = "its launcher was stopped by SIGTERM".to_owned();
        self.say(id, ToCoordinator::Stopped { reason, code: 143 }, at);
    }

    /// The ends that nodes have been told since the last call, which must all be the same.
    fn end(&mut self) -> (Vec<NodeId>, End) {
        let told = std::mem::take(&mut self.told).into_iter();
        let ends = told
            .filter_map(|(id, it)| if let ToAgent::End(end) = it { Some((id, end)) } else { None });
        let (ids, mut ends): (_, Vec<_>) = ends.unzip();
        assert!(ends.iter().all(|end| *end == ends[0]), "{ends:?}");
        (ids, ends.pop().expect("nobody was told to end"))
    }

    fn end_at(&mut self, at: f64) -> (Vec<NodeId>, End) {
        self.pass(at);
        self.end()
    }

    /// For whom a node is told to wait, since the last call.
    fn waits(&mut self, id: NodeId) -> Vec<String> {
        let is_wait = |told: &ToAgent| matches!(told, ToAgent::Wait { .. });
        let waits = self.told.extract_if(.., |(told, message)| *told == id && is_wait(message));
        let reason = |(_, it)| if let ToAgent::Wait { reason } = it { Some(reason) } else { None };
        waits.filter_map(reason).collect()
    }

    fn nobody_is_told_to_end_at(&mut self, at: f64) -> bool {
        self.pass(at);
        self.nobody_was_told_to_end()
    }

    fn nobody_was_told_to_end(&self) -> bool {
        !self.told.iter().any(|(_, message)| matches!(message, ToAgent::End(_)))
    }

    fn group(&self) -> Vec<NodeId> {
        self.started.last().unwrap().iter().map(|(id, _)| *id).collect()
    }
}
