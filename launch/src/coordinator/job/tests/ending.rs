//! How the ranks of a job that is not elastic end, and start again.

use super::*;

/// What is said of node 1 when it is lost.
const GONE: &str = "node 1 (h1) has gone: its launcher closed the connection";

#[test]
fn a_failure_ends_all_nodes_once_the_others_have_had_time_to_notice() {
    let mut scene = Scene::running(3);
    scene.say(0, ToCoordinator::Succeeded, 0.5);
    scene.fail(1, 2, Fault::Own, 1.0);
    assert!(scene.told.iter().filter(|(_, it)| *it == ToAgent::Notice).count() == 3);
    assert!(scene.nobody_is_told_to_end_at(1.9));
    let (told, end) = scene.end_at(2.0);
    assert_eq!(told, [0, 1, 2]);
    assert!(end.reason.starts_with("node 1 (h1): rank 2 "), "{}", end.reason);
    assert_eq!(end.next.as_deref(), Some("restart 1 of 1: starting all ranks again"));
}

#[test]
fn a_fault_of_its_own_is_blamed_before_earlier_victims_and_a_lost_node_too() {
    for lost in [false, true] {
        let mut scene = Scene::running(3);
        scene.fail(0, 0, Fault::Another, 1.0);
        match lost {
            true => scene.lose(2, Loss::Closed, 1.5),
            false => scene.fail(2, 4, Fault::Own, 1.5),
        }
        scene.fail(1, 2, Fault::Own, 1.9);
        let (_, end) = scene.end_at(2.0);
        assert!(end.reason.starts_with("node 2 (h2)"), "{}", end.reason);
        let next = end.next.unwrap();
        assert_eq!(next.ends_with("once 3 nodes are there"), lost, "{next}");
    }
}

#[test]
fn ranks_that_blame_others_wait_for_the_loss_of_a_node_that_has_missed_its_beats() {
    let mut scene = Scene::running(3);
    for second in 1..=10 {
        [0, 1].into_iter().for_each(|id| scene.say(id, ToCoordinator::Beat, second.into()));
    }
    scene.busy = Some(2);
    scene.fail(1, 2, Fault::Another, 10.0);
    scene.pass(11.0);
    assert!(scene.nobody_is_told_to_end_at(12.0));
    [0, 1].into_iter().for_each(|id| scene.say(id, ToCoordinator::Beat, 15.0));
    scene.lose(2, Loss::Silent(Duration::from_secs(15)), 15.0);
    let (_, end) = scene.end_at(16.0);
    assert_eq!(end.reason, "node 2 (h2) has been silent for 15 s");
    assert!(end.next.is_some());
}

#[test]
fn a_host_that_hears_of_no_other_one_blames_itself() {
    let mut scene = Scene::running(3);
    scene.say(2, ToCoordinator::Beat, 1.5);
    scene.say(0, ToCoordinator::Beat, 15.0);
    let silence = Duration::from_secs(15);
    scene.busy = Some(2);
    scene.lose(1, Loss::Silent(silence), 15.0);
    scene.say(0, ToCoordinator::Beat, 16.0);
    scene.pass(16.0);
    scene.pass(17.0);
    assert!(scene.nobody_was_told_to_end(), "node 2 is overdue");
    scene.lose(2, Loss::Silent(silence), 17.2);
    let (_, end) = scene.end_at(17.5);
    assert_eq!(end.reason, "node 0 (h0) has lost the connection to all other nodes");
    assert!(end.next.unwrap().starts_with("restart 1 of 1: "));
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
    let (told, end) = scene.end_at(6.0);
    assert_eq!((told, end.next.is_some(), end.code), (vec![0, 1], false, 3));
    scene.gone(&[0, 1], 7.0);
    assert!(scene.job.is_over());
}

#[test]
fn a_lost_node_is_a_restart_for_which_the_others_wait_until_its_place_is_taken() {
    let mut scene = Scene::running(2);
    scene.lose(1, Loss::Closed, 1.0);
    let (told, end) = scene.end_at(2.0);
    assert_eq!((told, end.next.is_some()), (vec![0], true));
    assert_eq!(end.reason, GONE);
    let next = "restart 1 of 1: starting all ranks again once 2 nodes are there";
    assert_eq!(end.next.as_deref(), Some(next));
    scene.gone(&[0], 3.0);
    assert_eq!(scene.waits(0), ["waiting at most 600 s for node 1 of 2; there are: h0"]);
    // A launcher with other arguments ends only itself.
    scene.event(4, Event::Joined(Node::example(Some(1), "h1", (3, 3))), 3.5);
    assert_eq!(scene.end().0, [4]);
    scene.come_back(1, 5, 4.0);
    assert_eq!(scene.group(), [0, 5]);
    let place = &scene.started[1][1].1;
    assert_eq!((place.node_rank, place.generation, place.restarts), (1, 1, 1));

    // No restart is left.
    scene.lose(5, Loss::Closed, 5.0);
    let (told, end) = scene.end_at(6.0);
    assert_eq!((told, end.next.is_some(), end.code), (vec![0], false, 1));
    assert_eq!(end.reason, GONE);
}

#[test]
fn nobody_takes_the_place_of_a_lost_node_within_the_join_timeout() {
    let mut scene = Scene::running(2);
    scene.lose(1, Loss::Closed, 1.0);
    scene.pass(2.0);
    scene.gone(&[0], 3.0);
    scene.told.clear();
    assert!(scene.nobody_is_told_to_end_at(602.9));
    let (told, end) = scene.end_at(603.0);
    assert_eq!((told, end.next.is_some(), end.code), (vec![0], false, 1));
    assert_eq!(end.reason, "waited 600 s (join_timeout) in vain for node 1 of 2; there are: h0");
}

#[test]
fn a_node_may_come_back_before_the_others_have_ended_their_ranks_and_go_again() {
    for (loss_is_decided, stays) in [(false, true), (true, true), (true, false)] {
        let mut scene = Scene::running(2);
        scene.lose(1, Loss::Closed, 1.0);
        if loss_is_decided {
            scene.pass(2.0);
        }
        scene.come_back(1, 5, 2.1);
        let (told, end) = scene.end_at(2.2);
        assert_eq!((told, end.next.is_some()), (vec![0], true));
        if !stays {
            scene.stop(5, 2.3);
        }
        scene.gone(&[0], 3.0);
        assert_eq!(scene.started.len(), if stays { 2 } else { 1 });
        assert_eq!(scene.waits(0).len(), usize::from(!stays));
    }
}

#[test]
fn a_node_lost_while_ranks_end_belongs_to_the_same_restart_and_is_named() {
    let mut scene = Scene::running(3);
    scene.fail(1, 2, Fault::Own, 1.0);
    scene.end_at(2.0);
    scene.gone(&[0], 3.0);
    scene.lose(1, Loss::Closed, 4.0);
    scene.gone(&[2], 5.0);
    assert_eq!(scene.waits(2), [GONE, "waiting at most 600 s for node 1 of 3; there are: h0, h2"]);
    scene.come_back(1, 5, 6.0);
    assert_eq!(scene.group(), [0, 5, 2]);
    assert_eq!(scene.started[1][1].1.restarts, 1);
}

#[test]
fn without_node_0_no_job_starts_again() {
    let mut scene = Scene::running(2);
    scene.lose(0, Loss::Closed, 1.0);
    let (told, end) = scene.end_at(2.0);
    assert_eq!((told, end.next.is_some()), (vec![1], false));

    let mut scene = Scene::running(2);
    scene.fail(1, 2, Fault::Own, 1.0);
    scene.end_at(2.0);
    scene.lose(0, Loss::Closed, 3.0);
    let (told, end) = scene.end();
    assert_eq!((told, end.next.is_some()), (vec![1], false));
    assert!(end.reason.contains("h0"), "{}", end.reason);
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
    assert_eq!((told, end.next.is_some(), end.code), (vec![0, 1], false, 143));
    assert_eq!(end.reason, "node 1 (h1): its launcher was stopped by SIGTERM");
}

#[test]
fn a_node_that_does_not_answer_the_end_does_not_keep_the_coordinator() {
    let mut scene = Scene::running(2);
    scene.stop(0, 1.0);
    scene.gone(&[0], 1.5);
    for (at, is_over) in [(5.9, false), (6.0, true)] {
        scene.pass(at);
        assert_eq!(scene.job.is_over(), is_over);
    }
}

#[test]
fn the_culprit_is_named_once_every_node_has_said_what_its_ranks_know_even_a_slow_one() {
    let mut scene = Scene::running(2);
    scene.fail(1, 2, Fault::Own, 1.0);
    scene.say(0, ToCoordinator::Noticed, 1.1);
    assert!(scene.nobody_is_told_to_end_at(1.1));
    scene.say(1, ToCoordinator::Noticed, 1.2);
    assert_eq!(scene.end_at(1.2).1.culprit, Some(2));

    let mut scene = Scene::running(2);
    scene.busy = Some(1);
    scene.fail(0, 0, Fault::Another, 1.0);
    assert!(scene.nobody_is_told_to_end_at(2.0));
    scene.fail(1, 2, Fault::Own, 2.4);
    let (_, end) = scene.end_at(2.5);
    assert!(end.reason.starts_with("node 1 (h1): rank 2 "), "{}", end.reason);
}

#[test]
fn a_rank_that_ends_after_it_has_left_its_reason_has_its_own_exit_code() {
    let mut scene = Scene::running(2);
    let left = Failure { exit_code: 1, ..Failure::example(2, Fault::Own, scene.at(1.0)) };
    scene.say(1, ToCoordinator::Failed(left), 1.0);
    scene.fail(1, 2, Fault::Own, 1.5);
    assert_eq!(scene.end_at(2.0).1.code, 3);
}

#[test]
fn the_only_node_is_not_named_and_a_signal_is_not_the_reason_of_a_failure_that_came_before() {
    for is_decided in [false, true] {
        let mut scene = Scene::running(1);
        scene.fail(0, 1, Fault::Own, 1.0);
        if is_decided {
            scene.pass(2.0);
        }
        scene.stop(0, 2.1);
        let (told, end) = scene.end();
        assert_eq!((told, end.culprit, end.code), (vec![0], Some(1), 3));
        assert_eq!(end.reason, "rank 1 (pid 1) exited with code 3: no data");
        assert_eq!(end.next.is_some(), is_decided);
        scene.gone(&[0], 3.0);
        assert_eq!(scene.started.len(), 1);
    }
}

#[test]
fn rank_0_learns_what_to_do_if_the_port_reserved_for_it_is_the_trouble() {
    let taken = |rank| Failure {
        explanation: ": OSError: [Errno 98] Address already in use".to_owned(),
        ..Failure::example(rank, Fault::Own, Instant::now())
    };
    let (without, must) = ("without SO_REUSEADDR needs --master-port", "bind it with SO_REUSEADDR");
    for (nodes, fixed, rank, hint) in [
        (1, None, 0, without),
        (1, None, 1, ""),
        (1, Some(4000), 0, ""),
        (2, None, 0, must),
        (2, None, 1, ""),
    ] {
        let mut scene = Scene::running(nodes);
        scene.job.terms.fixed_port = fixed;
        scene.say(0, ToCoordinator::Failed(taken(rank)), 1.0);
        let found = scene.end_at(2.0).1.hint.unwrap_or_default();
        assert!(found.ends_with(hint) && found.is_empty() == hint.is_empty(), "{found}");
    }
}
