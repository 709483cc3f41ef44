//! What the coordinator decides, one rule a test. Time is a number of seconds, and node 0 has the
//! connection 0.

use std::time::{Duration, Instant};

use super::{Action, Event, Job, NodeId};
use crate::args::Nodes;
use crate::coordinator::terms::Terms;
use crate::protocol::connection::Loss;
use crate::protocol::{End, Node, Placement, ToAgent, ToCoordinator};
use crate::report::{Failure, Fault};

fn node(rank: Option<u16>, host: &str, nodes: (u16, u16)) -> Node {
    Node {
        launcher: host.to_owned(),
        host: host.to_owned(),
        node_rank: rank,
        nodes: Nodes { min: nodes.0, max: nodes.1 },
        ranks: 2,
        max_restarts: 1,
        role: "default".to_owned(),
        program: Some("0123456789abcdef".to_owned()),
    }
}

/// A job, and what it has told the nodes.
struct Scene {
    job: Job,
    begin: Instant,
    nodes: (u16, u16),
    elastic: bool,
    told: Vec<(NodeId, ToAgent)>,
    started: Vec<Vec<(NodeId, Placement)>>,
}

impl Scene {
    fn new(nodes: (u16, u16)) -> Self {
        let elastic = nodes.0 < nodes.1;
        let own = node((!elastic).then_some(0), "h0", nodes);
        let terms = Terms {
            nodes: own.nodes,
            max_restarts: own.max_restarts,
            own,
            heartbeat_timeout: Duration::from_secs(15),
            join_timeout: Duration::from_secs(600),
            last_call_timeout: Duration::from_secs(30),
        };
        let begin = Instant::now();
        let job = Job::new(terms, begin);
        Scene { job, begin, nodes, elastic, told: Vec::new(), started: Vec::new() }
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

    fn perform(&mut self, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Tell(id, message) => self.told.push((id, message)),
                Action::Start(places) => self.started.push(places),
            }
        }
    }

    fn event(&mut self, id: NodeId, event: Event, at: f64) {
        let now = self.at(at);
        let actions = self.job.handle(id, event, now);
        self.perform(actions);
    }

    fn pass(&mut self, at: f64) {
        let now = self.at(at);
        let actions = self.job.pass_time(now);
        self.perform(actions);
    }

    fn join(&mut self, id: u16, at: f64) {
        let node = node((!self.elastic).then_some(id), &format!("h{id}"), self.nodes);
        self.event(id.into(), Event::Joined(node), at);
    }

    fn say(&mut self, id: NodeId, message: ToCoordinator, at: f64) {
        self.event(id, Event::Said(message), at);
    }

    fn fail(&mut self, id: NodeId, rank: u32, fault: Fault, at: f64) {
        let failure = Failure::example(rank, fault, Duration::ZERO);
        self.say(id, ToCoordinator::Failed(failure), at);
    }

    fn gone(&mut self, ids: &[NodeId], at: f64) {
        for id in ids {
            self.say(*id, ToCoordinator::Gone, at);
        }
    }

    fn stop(&mut self, id: NodeId, at: f64) {
        let reason = "its launcher was stopped by SIGTERM".to_owned();
        self.say(id, ToCoordinator::Stopped { reason, code: 143 }, at);
    }

    /// The ends that nodes have been told since the last call, which must all be the same.
    fn end(&mut self) -> (Vec<NodeId>, End) {
        let mut told = Vec::new();
        for (id, message) in std::mem::take(&mut self.told) {
            if let ToAgent::End(end) = message {
                told.push((id, end));
            }
        }
        let end = told.first().expect("nobody was told to end").1.clone();
        assert!(told.iter().all(|(_, other)| *other == end), "{told:?}");
        (told.into_iter().map(|(id, _)| id).collect(), end)
    }

    fn nobody_was_told_to_end(&self) -> bool {
        !self.told.iter().any(|(_, message)| matches!(message, ToAgent::End(_)))
    }

    /// Who runs, by node rank.
    fn group(&self) -> Vec<NodeId> {
        self.started.last().unwrap().iter().map(|(id, _)| *id).collect()
    }
}

#[test]
fn the_ranks_start_when_all_nodes_are_there_and_are_numbered_by_node_rank() {
    let mut scene = Scene::new((3, 3));
    scene.join(2, 0.0);
    scene.join(0, 1.0);
    assert!(scene.started.is_empty());
    scene.join(1, 2.0);
    let first_ranks: Vec<_> = scene.started[0]
        .iter()
        .map(|(id, place)| (*id, place.node_rank, place.first_rank, place.world_size))
        .collect();
    assert_eq!(first_ranks, [(0, 0, 0, 6), (1, 1, 2, 6), (2, 2, 4, 6)]);
}

#[test]
fn ranks_of_a_role_are_numbered_among_themselves() {
    let mut scene = Scene::new((3, 3));
    for id in [0, 1, 2] {
        let role = if id == 1 { "reader" } else { "default" };
        let own = Node { role: role.to_owned(), ..node(Some(id), &format!("h{id}"), (3, 3)) };
        scene.event(id.into(), Event::Joined(own), 0.0);
    }
    let roles: Vec<_> = scene.started[0]
        .iter()
        .map(|(_, place)| (place.first_role_rank, place.role_world_size))
        .collect();
    assert_eq!(roles, [(0, 4), (0, 2), (2, 4)]);
}

#[test]
fn what_makes_no_job_is_refused_on_every_node_that_is_there_or_comes() {
    let other = |change: fn(&mut Node)| {
        let mut node = node(Some(1), "h1", (3, 3));
        change(&mut node);
        node
    };
    for (node, reason) in [
        (other(|it| it.nodes.max = 4), "different --nnodes: 3 on node 0 (h0), 3:4 on host h1"),
        (
            other(|it| it.max_restarts = 7),
            "different --max-restarts: 1 on node 0 (h0), 7 on host h1",
        ),
        (
            other(|it| it.program = Some("f".to_owned())),
            "different programs (--rdzv-conf check_program=0 allows that), by their SHA-256: \
             0123456789ab on node 0 (h0), f on host h1",
        ),
        (
            other(|it| it.node_rank = None),
            "different --rdzv-backend: static on node 0 (h0), c10d on host h1",
        ),
        (other(|it| it.node_rank = Some(2)), "--node-rank 2 twice: on host h2 and on host h1"),
        (other(|it| it.node_rank = Some(0)), "--node-rank 0 twice: on host h0 and on host h1"),
    ] {
        let mut scene = Scene::new((3, 3));
        scene.join(2, 0.0);
        scene.event(5, Event::Joined(node), 1.0);
        let (told, end) = scene.end();
        assert_eq!((told, end.reason.as_str(), end.code), (vec![2, 5], reason, 1));
        scene.gone(&[2, 5], 1.1);
        assert!(!scene.job.is_over());
        scene.join(0, 2.0);
        assert_eq!(scene.end(), (vec![0], end));
        scene.gone(&[0], 2.1);
        assert!(scene.job.is_over());
    }
}

#[test]
fn nobody_waits_long_for_nodes_that_would_be_refused() {
    let mut scene = Scene::new((3, 3));
    scene.join(0, 0.0);
    scene.event(5, Event::Joined(node(Some(0), "h1", (3, 3))), 0.0);
    scene.pass(4.9);
    assert!(!scene.job.is_over());
    scene.pass(5.0);
    assert!(scene.job.is_over());
}

#[test]
fn a_stray_launcher_is_turned_away_from_a_job_that_runs() {
    let mut scene = Scene::running(2);
    scene.event(9, Event::Joined(node(Some(1), "h9", (2, 2))), 1.0);
    let (told, end) = scene.end();
    assert_eq!(
        (told, end.reason.as_str()),
        (vec![9], "--node-rank 1 twice: on host h1 and on host h9")
    );
    scene.event(9, Event::Lost(Loss::Closed), 2.0);
    assert!(scene.nobody_was_told_to_end());
}

#[test]
fn nodes_that_do_not_come_are_named_after_the_join_timeout() {
    let mut scene = Scene::new((4, 4));
    scene.join(0, -100.0);
    scene.join(2, -100.0);
    scene.pass(-90.0);
    let reason = "nodes 1, 3 of 4 have not joined within 10 s; there are: h0, h2".to_owned();
    let wait = ToAgent::Wait { reason };
    assert_eq!(scene.told, [(0, wait.clone()), (2, wait)]);
    scene.pass(499.0);
    assert!(scene.nobody_was_told_to_end());
    scene.pass(500.0);
    let (told, end) = scene.end();
    assert_eq!(told, [0, 2]);
    assert_eq!(end.reason, "nodes 1, 3 of 4 have not joined within 600 s; there are: h0, h2");
}

#[test]
fn a_node_that_is_lost_before_the_ranks_start_is_named_at_once() {
    let mut scene = Scene::new((3, 3));
    scene.join(0, -100.0);
    scene.join(1, -100.0);
    scene.pass(-90.0);
    scene.told.clear();
    scene.event(1, Event::Lost(Loss::Closed), -80.0);
    scene.told.clear();
    scene.pass(-80.0);
    let reason = "nodes 1, 2 of 3 have not joined within 20 s; there are: h0".to_owned();
    assert_eq!(scene.told, [(0, ToAgent::Wait { reason })]);
}

#[test]
fn a_failure_ends_all_nodes_once_the_others_have_had_time_to_notice() {
    let mut scene = Scene::running(3);
    scene.say(0, ToCoordinator::Succeeded, 0.5);
    scene.fail(1, 2, Fault::Own, 1.0);
    assert!(scene.told.iter().filter(|(_, it)| *it == ToAgent::Notice).count() == 3);
    scene.pass(1.9);
    assert!(scene.nobody_was_told_to_end());
    scene.pass(2.0);
    let (told, end) = scene.end();
    assert_eq!(told, [0, 1, 2]);
    assert!(end.reason.starts_with("node 1 (h1): rank 2 "), "{}", end.reason);
    assert!(end.again && end.reason.ends_with("\nrestart 1 of 1: starting all ranks again"));
}

#[test]
fn a_fault_of_its_own_is_blamed_before_earlier_victims_and_a_lost_node_too() {
    for lost in [false, true] {
        let mut scene = Scene::running(3);
        scene.fail(0, 0, Fault::Another, 1.0);
        match lost {
            true => scene.event(2, Event::Lost(Loss::Closed), 1.5),
            false => scene.fail(2, 4, Fault::Own, 1.5),
        }
        scene.fail(1, 2, Fault::Own, 1.9);
        scene.pass(2.0);
        let (_, end) = scene.end();
        assert!(end.reason.starts_with("node 2 (h2)"), "{}", end.reason);
        // Without a node, a job that is not elastic cannot start again.
        assert_eq!(end.again, !lost);
    }
}

#[test]
fn ranks_that_blame_others_wait_for_the_loss_of_a_node_that_has_missed_its_beats() {
    let mut scene = Scene::running(3);
    for second in 1..=10 {
        for id in [0, 1] {
            scene.say(id, ToCoordinator::Beat, second.into());
        }
    }
    scene.fail(1, 2, Fault::Another, 10.0);
    scene.pass(11.0);
    assert!(scene.nobody_was_told_to_end());
    let silence = Duration::from_secs(15);
    scene.event(2, Event::Lost(Loss::Silent(silence)), 15.0);
    scene.pass(16.0);
    let (_, end) = scene.end();
    assert_eq!(end.reason, "node 2 (h2) has been silent for 15 s");
}

#[test]
fn a_host_that_hears_of_no_other_one_blames_itself() {
    let mut scene = Scene::running(3);
    scene.say(2, ToCoordinator::Beat, 1.5);
    scene.say(0, ToCoordinator::Beat, 15.0);
    let silence = Duration::from_secs(15);
    scene.event(1, Event::Lost(Loss::Silent(silence)), 15.0);
    scene.say(0, ToCoordinator::Beat, 16.0);
    scene.told.clear();
    scene.pass(16.0);
    assert!(scene.nobody_was_told_to_end(), "node 2 is overdue");
    scene.event(2, Event::Lost(Loss::Silent(silence)), 16.5);
    scene.told.clear();
    scene.pass(17.5);
    assert_eq!(scene.end().1.reason, "node 0 (h0) has lost the connection to all other nodes");
}

#[test]
fn a_restart_begins_when_no_rank_is_left_and_the_restarts_are_counted() {
    let mut scene = Scene::running(2);
    scene.fail(1, 2, Fault::Own, 1.0);
    scene.pass(2.0);
    scene.gone(&[0], 3.0);
    assert_eq!(scene.started.len(), 1);
    scene.gone(&[1], 4.0);
    let place = &scene.started[1][1].1;
    assert_eq!((place.generation, place.restarts), (1, 1));
    scene.end();
    scene.fail(0, 0, Fault::Own, 5.0);
    scene.pass(6.0);
    let (told, end) = scene.end();
    assert_eq!((told, end.again, end.code), (vec![0, 1], false, 3));
    scene.gone(&[0, 1], 7.0);
    assert!(scene.job.is_over());
}

#[test]
fn a_node_lost_between_two_generations_ends_a_job_that_needs_it() {
    let mut scene = Scene::running(2);
    scene.fail(1, 2, Fault::Own, 1.0);
    scene.pass(2.0);
    scene.end();
    scene.gone(&[0], 3.0);
    scene.event(1, Event::Lost(Loss::Closed), 4.0);
    let (told, end) = scene.end();
    assert_eq!((told, end.again), (vec![1, 0], false));
    assert!(end.reason.starts_with("node 1 (h1) has gone"), "{}", end.reason);
}

#[test]
fn the_job_succeeds_when_all_nodes_have() {
    let mut scene = Scene::running(2);
    scene.say(1, ToCoordinator::Succeeded, 1.0);
    assert!(scene.told.is_empty());
    scene.say(0, ToCoordinator::Succeeded, 2.0);
    assert_eq!(scene.told, [(0, ToAgent::Done), (1, ToAgent::Done)]);
    scene.gone(&[0, 1], 3.0);
    assert!(scene.job.is_over());
}

#[test]
fn a_signal_to_one_launcher_ends_a_job_that_is_not_elastic_at_once() {
    let mut scene = Scene::running(2);
    scene.fail(0, 0, Fault::Own, 0.9);
    scene.stop(1, 1.0);
    let (told, end) = scene.end();
    assert_eq!((told, end.again, end.code), (vec![0, 1], false, 143));
    assert_eq!(end.reason, "node 1 (h1): its launcher was stopped by SIGTERM");
}

#[test]
fn a_node_that_does_not_answer_the_end_does_not_keep_the_coordinator() {
    let mut scene = Scene::running(2);
    scene.stop(0, 1.0);
    scene.gone(&[0], 1.5);
    scene.pass(5.9);
    assert!(!scene.job.is_over());
    scene.pass(6.0);
    assert!(scene.job.is_over());
}

#[test]
fn an_elastic_job_starts_after_the_last_call_or_when_it_is_full() {
    let mut scene = Scene::new((1, 3));
    scene.join(4, 0.0);
    scene.pass(30.0);
    assert!(scene.started.is_empty(), "node 0 is not there");
    scene.join(0, 31.0);
    scene.pass(60.0);
    assert!(scene.started.is_empty());
    scene.pass(61.0);
    assert_eq!(scene.group(), [0, 4]);

    let mut scene = Scene::new((1, 2));
    scene.join(0, 0.0);
    scene.join(1, 1.0);
    assert_eq!(scene.group(), [0, 1]);
}

#[test]
fn the_last_call_counts_though_the_join_timeout_ends_before_it() {
    let mut scene = Scene::new((1, 3));
    scene.join(0, 490.0);
    assert_eq!(scene.job.due(), Some(scene.at(520.0)));
    scene.pass(510.0);
    assert!(scene.nobody_was_told_to_end());
    scene.pass(520.0);
    assert_eq!(scene.group(), [0]);
}

#[test]
fn an_elastic_job_goes_on_without_a_lost_node_and_counts_no_restart() {
    let mut scene = Scene::elastic(3, (1, 3));
    scene.event(1, Event::Lost(Loss::Closed), 1.0);
    scene.fail(2, 4, Fault::Another, 1.2);
    scene.pass(2.0);
    let told = std::mem::take(&mut scene.told);
    let ends = told.iter().filter(|(_, it)| matches!(it, ToAgent::End(end) if end.again));
    assert_eq!(ends.map(|(id, _)| *id).collect::<Vec<_>>(), [0, 2]);
    scene.gone(&[0, 2], 3.0);
    assert_eq!(scene.group(), [0, 2]);
    let place = &scene.started[1][1].1;
    assert_eq!((place.node_rank, place.restarts, place.generation), (1, 0, 1));
}

#[test]
fn an_elastic_job_goes_on_without_a_node_that_leaves() {
    let mut scene = Scene::elastic(2, (1, 3));
    scene.stop(1, 1.0);
    let (_, end) = scene.end();
    assert!(end.again);
    assert!(end.reason.ends_with("going on with 1 node: starting all ranks again"));
    scene.gone(&[0, 1], 2.0);
    assert_eq!(scene.group(), [0]);
}

#[test]
fn an_elastic_job_takes_in_a_node_that_joins_unless_it_is_full() {
    let mut scene = Scene::elastic(1, (1, 2));
    scene.join(3, 1.0);
    let (told, end) = scene.end();
    assert_eq!((told, end.again), (vec![0], true));
    assert!(end.reason.starts_with("a node on host h3 joins the job\n"), "{}", end.reason);
    scene.gone(&[0], 2.0);
    assert_eq!(scene.group(), [0, 3]);
    scene.join(4, 3.0);
    assert!(matches!(scene.told.last(), Some((4, ToAgent::Wait { .. }))));
    scene.event(3, Event::Lost(Loss::Closed), 4.0);
    scene.pass(5.0);
    scene.gone(&[0], 6.0);
    assert_eq!(scene.group(), [0, 4]);
}

#[test]
fn too_few_nodes_wait_for_others_until_the_join_timeout() {
    let mut scene = Scene::elastic(2, (2, 3));
    scene.stop(1, 1.0);
    let (_, end) = scene.end();
    assert!(end.again && end.reason.ends_with("SIGTERM\n1 of at least 2 nodes are left"));
    scene.gone(&[1, 0], 2.0);
    assert!(matches!(scene.told.last(), Some((0, ToAgent::Wait { .. }))));
    scene.told.clear();
    scene.pass(602.0);
    let (told, end) = scene.end();
    assert_eq!((told, end.again), (vec![0], false));
    assert_eq!(end.reason, "only 1 of at least 2 nodes have joined within 600 s: h0");
}

#[test]
fn without_node_0_an_elastic_job_ends() {
    let mut scene = Scene::elastic(2, (1, 3));
    scene.stop(0, 1.0);
    let (told, end) = scene.end();
    assert_eq!((told, end.again, end.code), (vec![0, 1], false, 143));
}

#[test]
fn a_rank_that_fails_counts_in_an_elastic_job_too() {
    let mut scene = Scene::elastic(2, (1, 3));
    scene.fail(1, 2, Fault::Own, 1.0);
    scene.pass(2.0);
    let (_, end) = scene.end();
    assert!(end.again && end.reason.ends_with("restart 1 of 1: starting all ranks again"));
    scene.gone(&[0, 1], 3.0);
    scene.fail(1, 2, Fault::Own, 4.0);
    scene.pass(5.0);
    assert!(!scene.end().1.again);
}
