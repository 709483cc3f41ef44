//! Jobs whose nodes come and go.

use super::*;

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

    // The last call counts though the join timeout ends before it.
    let mut scene = Scene::new((1, 3));
    scene.join(0, 490.0);
    assert_eq!(scene.job.due(), Some(scene.at(520.0)));
    assert!(scene.nobody_is_told_to_end_at(510.0));
    scene.pass(520.0);
    assert_eq!(scene.group(), [0]);
}

#[test]
fn an_elastic_job_goes_on_without_a_lost_node_and_counts_no_restart() {
    let mut scene = Scene::elastic(3, (1, 3));
    scene.lose(1, Loss::Closed, 1.0);
    scene.fail(2, 4, Fault::Another, 1.2);
    let (told, end) = scene.end_at(2.0);
    assert_eq!((told, end.next.is_some()), (vec![0, 2], true));
    scene.gone(&[0, 2], 3.0);
    assert_eq!(scene.group(), [0, 2]);
    let place = &scene.started[1][1].1;
    assert_eq!((place.node_rank, place.restarts, place.generation), (1, 0, 1));
}

#[test]
fn an_elastic_job_goes_on_without_a_node_that_leaves_unless_it_is_node_0() {
    let mut scene = Scene::elastic(2, (1, 3));
    scene.stop(1, 1.0);
    let (_, end) = scene.end();
    assert_eq!(end.next.as_deref(), Some("going on with 1 node: starting all ranks again"));
    scene.gone(&[0, 1], 2.0);
    assert_eq!(scene.group(), [0]);

    let mut scene = Scene::elastic(2, (1, 3));
    scene.stop(0, 1.0);
    let (told, end) = scene.end();
    assert_eq!((told, end.next.is_some(), end.code), (vec![0, 1], false, 143));
}

#[test]
fn an_elastic_job_takes_in_a_node_that_joins_unless_it_is_full() {
    let mut scene = Scene::elastic(1, (1, 2));
    scene.join(3, 1.0);
    let (told, end) = scene.end();
    assert_eq!((told, end.next.is_some()), (vec![0], true));
    assert_eq!(end.reason, "a node on host h3 joins the job");
    scene.gone(&[0], 2.0);
    assert_eq!(scene.group(), [0, 3]);
    scene.join(4, 3.0);
    assert_eq!(scene.waits(4), ["waiting for a place in the job of --nnodes 1:2"]);
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
    assert!(end.reason.ends_with("SIGTERM"), "{}", end.reason);
    assert_eq!(end.next.unwrap(), "starting all ranks again once 2 nodes are there");
    scene.gone(&[1, 0], 2.0);
    assert_eq!(scene.waits(0), ["waiting at most 600 s for 1 more node; there are: h0"]);
    assert!(scene.nobody_is_told_to_end_at(601.9));
    let (told, end) = scene.end_at(602.0);
    assert_eq!((told, end.next.is_some(), end.code), (vec![0], false, 1));
    let reason = "waited 600 s (join_timeout) in vain for 1 more node; there are: h0";
    assert_eq!(end.reason, reason);
}

#[test]
fn a_rank_that_fails_counts_in_an_elastic_job_too() {
    let mut scene = Scene::elastic(2, (1, 3));
    scene.fail(1, 2, Fault::Own, 1.0);
    let (_, end) = scene.end_at(2.0);
    assert_eq!(end.next.as_deref(), Some("restart 1 of 1: starting all ranks again"));
    scene.gone(&[0, 1], 3.0);
    scene.fail(1, 2, Fault::Own, 4.0);
    assert!(scene.end_at(5.0).1.next.is_none());
}
