//! How nodes come together, or learn why they cannot.

use super::*;

#[test]
fn the_ranks_start_when_all_nodes_are_there_and_are_numbered_by_node_rank() {
    let mut scene = Scene::new((3, 3));
    scene.join(2, 0.0);
    scene.join(0, 1.0);
    assert!(scene.started.is_empty());
    scene.join(1, 2.0);
    let place = |(id, it): &(NodeId, Placement)| (*id, it.node_rank, it.first_rank, it.world_size);
    let first_ranks: Vec<_> = scene.started[0].iter().map(place).collect();
    assert_eq!(first_ranks, [(0, 0, 0, 6), (1, 1, 2, 6), (2, 2, 4, 6)]);
}

#[test]
fn ranks_of_a_role_are_numbered_among_themselves() {
    let mut scene = Scene::new((3, 3));
    for id in [0, 1, 2] {
        let role = if id == 1 { "reader" } else { "default" };
        let node = Node::example(Some(id), &format!("h{id}"), (3, 3));
        scene.event(id.into(), Event::Joined(Node { role: role.to_owned(), ..node }), 0.0);
    }
    let role = |(_, place): &(NodeId, Placement)| (place.first_role_rank, place.role_world_size);
    assert_eq!(scene.started[0].iter().map(role).collect::<Vec<_>>(), [(0, 4), (0, 2), (2, 4)]);
}

#[test]
fn what_makes_no_job_is_refused_on_every_node_that_is_there_or_comes() {
    type Change = fn(&mut Node);
    let others: [(Change, &str); 6] = [
        (|it| it.nodes.max = 4, "different --nnodes: 3 on node 0 (h0), 3:4 on host h1"),
        (|it| it.max_restarts = 7, "different --max-restarts: 1 on node 0 (h0), 7 on host h1"),
        (
            |it| it.program = Some("f".to_owned()),
            "different programs (--rdzv-conf check_program=0 allows that), by their SHA-256: \
             0123456789ab on node 0 (h0), f on host h1",
        ),
        (
            |it| it.node_rank = None,
            "different --rdzv-backend: static on node 0 (h0), c10d on host h1",
        ),
        (|it| it.node_rank = Some(2), "--node-rank 2 twice: on host h2 and on host h1"),
        (|it| it.node_rank = Some(0), "--node-rank 0 twice: on host h0 and on host h1"),
    ];
    for (change, reason) in others {
        let mut node = Node::example(Some(1), "h1", (3, 3));
        change(&mut node);
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
    scene.event(5, Event::Joined(Node::example(Some(0), "h1", (3, 3))), 0.0);
    for (at, is_over) in [(4.9, false), (5.0, true)] {
        scene.pass(at);
        assert_eq!(scene.job.is_over(), is_over);
    }
}

#[test]
fn a_stray_launcher_is_turned_away_from_a_job_that_runs() {
    let mut scene = Scene::running(2);
    scene.event(9, Event::Joined(Node::example(Some(1), "h9", (2, 2))), 1.0);
    let (told, end) = scene.end();
    let reason = "--node-rank 1 twice: on host h1 and on host h9";
    assert_eq!((told, end.reason.as_str()), (vec![9], reason));
    scene.event(9, Event::Lost(Loss::Closed), 2.0);
    assert!(scene.nobody_was_told_to_end());
}

#[test]
fn a_node_lost_before_the_ranks_start_is_named_at_once_and_those_that_are_missing_after_the_timeout()
 {
    let mut scene = Scene::new((3, 3));
    scene.join(0, -100.0);
    scene.join(2, -99.8);
    scene.lose(2, Loss::Closed, -99.5);
    let lost = "node 2 (h2) has gone: its launcher closed the connection";
    let wait = "waiting at most 600 s for nodes 1, 2 of 3; there are: h0";
    assert_eq!(scene.waits(0), [lost, wait]);
    // One that comes right after that is no longer missing, and learns for whom it waits.
    scene.join(1, -99.4);
    scene.pass(-90.0);
    let wait = "waiting at most 590 s for node 2 of 3; there are: h0, h1";
    assert_eq!([scene.waits(0), scene.waits(1)], [[wait], [wait]]);
    assert!(scene.nobody_is_told_to_end_at(499.0));
    let reason = "waited 600 s (join_timeout) in vain for node 2 of 3; there are: h0, h1";
    assert_eq!(scene.end_at(500.0), (vec![0, 1], End::because(reason.to_owned())));
}

#[test]
fn a_node_without_a_number_that_is_lost_or_stopped_before_the_ranks_start_is_named_too() {
    let mut scene = Scene::new((3, 4));
    scene.join(0, -100.0);
    scene.join(1, -90.0);
    scene.join(2, -80.0);
    scene.told.clear();
    scene.lose(1, Loss::Closed, -70.0);
    scene.stop(2, -60.0);
    let gone = "a node on host h1 has gone: its launcher closed the connection";
    let for_one = "waiting at most 570 s for 1 more node; there are: h0, h2";
    let stopped = "a node on host h2: its launcher was stopped by SIGTERM";
    let for_two = "waiting at most 560 s for 2 more nodes; there are: h0";
    assert_eq!(scene.waits(0), [gone, for_one, stopped, for_two]);
}
