//! Ranks that are lost and replaced while the others run.

use super::*;

impl Scene {
    /// The same, in which so many ranks of each node take part since 0.5 s.
    fn taking_part(mut self, ranks: u16) -> Self {
        self.group().into_iter().for_each(|id| self.takes_part(id, ranks, 0.5));
        self
    }

    fn takes_part(&mut self, id: NodeId, ranks: u16, at: f64) {
        self.say(id, ToCoordinator::TakesPart(Claim { number: 0, ranks }), at);
    }

    fn lose_rank(&mut self, id: NodeId, rank: u32, left: u16, at: f64) {
        let failure = Failure::example(rank, Fault::Own, self.at(at));
        let (claim, generation) = (Claim { number: 0, ranks: left }, self.job.generation);
        self.say(id, ToCoordinator::Lost { failure, claim, generation }, at);
    }

    /// These nodes have done the work of this generation. Returns who may leave.
    fn finish(&mut self, ids: &[NodeId], generation: u32, at: f64) -> Vec<NodeId> {
        ids.iter().for_each(|id| self.say(*id, ToCoordinator::Finished { generation }, at));
        let may_leave = |(id, message): (NodeId, _)| (message == ToAgent::Leave).then_some(id);
        std::mem::take(&mut self.told).into_iter().filter_map(may_leave).collect()
    }

    /// Of the last generation: whether a rank is lost, how many there are, and each node's first rank and number.
    fn generation(&self) -> (bool, u32, Vec<(u32, u16)>) {
        let (is_loss, places) = self.regrouped.last().unwrap();
        let nodes = places.iter().map(|(_, place, claim)| (place.first_rank, claim.ranks));
        (*is_loss, places[0].1.world_size, nodes.collect())
    }
}

#[test]
fn without_a_lost_rank_the_others_go_on_and_then_with_the_one_in_its_place() {
    let mut scene = Scene::running(3).taking_part(2);
    assert!(scene.regrouped.is_empty());
    scene.lose_rank(1, 2, 1, 1.0);
    assert_eq!(scene.generation(), (true, 5, vec![(0, 2), (2, 1), (3, 2)]));
    scene.takes_part(1, 2, 1.5);
    assert_eq!(scene.generation(), (false, 6, vec![(0, 2), (2, 2), (4, 2)]));
    let places = scene.regrouped.iter().map(|(_, places)| &places[0].1);
    let of: Vec<_> = places.map(|place| (place.generation, place.restarts)).collect();
    assert_eq!(of, [(1, 1), (2, 1)]);
    assert!(scene.nobody_was_told_to_end() && scene.started.len() == 1);
}

#[test]
fn a_rank_is_not_replaced_more_often_than_max_restarts_says() {
    let mut scene = Scene::running(2).taking_part(2);
    scene.lose_rank(1, 3, 1, 1.0);
    scene.lose_rank(0, 1, 1, 2.0);
    let (_, end) = scene.end_at(3.0);
    assert_eq!((scene.regrouped.len(), end.next, end.culprit), (1, None, Some(1)));
}

#[test]
fn all_start_again_if_a_node_takes_no_part_node_0_has_no_rank_left_or_one_has_ended_before() {
    let mut no_part = Scene::running(2);
    no_part.takes_part(1, 2, 0.5);
    no_part.lose_rank(1, 3, 1, 1.0);
    let mut none_left = Scene::running(2).taking_part(1);
    none_left.lose_rank(0, 0, 0, 1.0);
    let mut settled = Scene::running(2).taking_part(2);
    settled.say(0, ToCoordinator::Settled { generation: 0 }, 0.9);
    settled.lose_rank(1, 3, 1, 1.0);
    for mut scene in [no_part, none_left, settled] {
        let next = scene.end_at(2.0).1.next;
        assert_eq!(next.as_deref(), Some("restart 1 of 1: starting all ranks again"));
        assert!(scene.regrouped.is_empty());
    }
}

#[test]
fn a_group_that_fails_without_a_loss_is_made_anew_once() {
    let mut scene = Scene::running(2).taking_part(2);
    (0..2).for_each(|id| scene.say(id, ToCoordinator::Broken { generation: 0 }, 1.0));
    assert_eq!(scene.generation(), (true, 4, vec![(0, 2), (2, 2)]));
    assert_eq!(scene.regrouped.len(), 1, "the second speaks of a generation that is over");
    // The reason for the first is heard of late, and does not count again.
    let failure = Failure::example(3, Fault::Own, scene.at(1.5));
    let claim = Claim { number: 0, ranks: 1 };
    scene.say(1, ToCoordinator::Lost { failure, claim, generation: 0 }, 1.5);
    assert_eq!(scene.generation(), (true, 3, vec![(0, 2), (2, 1)]));
    let restarts = scene.regrouped.iter().map(|(_, places)| places[0].1.restarts);
    assert_eq!(restarts.collect::<Vec<_>>(), [1, 1]);
}

#[test]
fn a_group_can_be_made_anew_while_a_node_joins() {
    let mut scene = Scene::elastic(2, (1, 3)).taking_part(2);
    scene.join(2, 1.0);
    scene.say(0, ToCoordinator::Broken { generation: 0 }, 2.0);
    assert_eq!(scene.generation(), (true, 4, vec![(0, 2), (2, 2)]));
}

#[test]
fn all_may_leave_once_the_last_has_done_its_work_and_nobody_is_replaced_after_that() {
    let mut scene = Scene::running(3).taking_part(2);
    assert!(scene.finish(&[0, 1], 0, 1.0).is_empty());
    // Now they have to finish again, in another generation.
    scene.lose_rank(2, 4, 1, 2.0);
    assert!(scene.finish(&[2], 0, 3.0).is_empty() && scene.finish(&[2, 0], 1, 3.0).is_empty());
    assert_eq!(scene.finish(&[1], 1, 3.0), [0, 1, 2]);
    scene.takes_part(2, 2, 4.0);
    scene.lose_rank(1, 2, 1, 5.0);
    let (_, end) = scene.end_at(6.0);
    assert_eq!((scene.regrouped.len(), end.next, end.culprit), (1, None, Some(2)));
}

#[test]
fn a_node_without_a_rank_in_a_generation_is_not_waited_for() {
    let mut scene = Scene::running(2).taking_part(1);
    scene.lose_rank(1, 1, 0, 1.0);
    assert_eq!(scene.finish(&[0], 1, 2.0), [0, 1]);
}

#[test]
fn a_rank_that_ends_before_its_node_hears_of_a_loss_ends_the_job_with_that() {
    let mut scene = Scene::running(3).taking_part(2);
    scene.lose_rank(1, 3, 1, 1.0);
    scene.say(0, ToCoordinator::Settled { generation: 0 }, 1.1);
    let (_, end) = scene.end_at(3.0);
    assert_eq!(end.next.as_deref(), Some("restart 1 of 1: starting all ranks again"));
    assert_eq!(end.culprit, Some(3));
}

#[test]
fn a_node_that_fails_before_it_has_a_place_is_turned_away_and_another_comes() {
    let mut scene = Scene::elastic(1, (1, 2));
    scene.takes_part(0, 2, 0.5);
    scene.join(1, 1.0);
    scene.join(2, 1.5);
    assert_eq!((scene.group(), scene.waits(2).len()), (vec![1], 1));
    scene.lose_rank(1, 2, 1, 2.0);
    let (told, end) = scene.end();
    assert_eq!((told, end.code), (vec![1], 3));
    assert_eq!(scene.group(), [2]);
    scene.join(3, 2.5);
    scene.lose(2, Loss::Closed, 3.0);
    assert_eq!(scene.group(), [3]);
    scene.join(4, 3.5);
    scene.stop(3, 4.0);
    assert_eq!(scene.group(), [4]);
    assert!(scene.regrouped.is_empty());
}

#[test]
fn a_node_that_is_there_too_late_does_not_hold_up_the_end() {
    let mut scene = Scene::elastic(2, (1, 3)).taking_part(2);
    scene.join(2, 1.0);
    assert_eq!(scene.finish(&[0, 1], 0, 2.0), [0, 1]);
    scene.takes_part(2, 2, 2.5);
    (0..2).for_each(|id| scene.say(id, ToCoordinator::Succeeded, 3.0));
    let done = scene.told.iter().filter(|(_, message)| *message == ToAgent::Done);
    assert_eq!(done.map(|(id, _)| *id).collect::<Vec<_>>(), [0, 1, 2]);
}

#[test]
fn a_node_that_is_stopped_has_no_place_if_all_start_again_before_it_is_gone() {
    let mut scene = Scene::elastic(3, (1, 3)).taking_part(1);
    scene.stop(1, 1.0);
    let (told, end) = scene.end();
    assert_eq!((told, end.code), (vec![1], 143));
    scene.lose_rank(0, 0, 0, 1.5);
    scene.pass(4.0);
    scene.gone(&[0, 2], 5.0);
    assert_eq!(scene.group(), [0, 2]);
}

#[test]
fn an_elastic_job_goes_on_without_a_node_that_is_lost_or_leaves_and_takes_in_one_that_joins() {
    let mut scene = Scene::elastic(3, (1, 3)).taking_part(2);
    scene.lose(1, Loss::Closed, 1.0);
    assert_eq!(scene.generation(), (true, 4, vec![(0, 2), (2, 2)]));
    scene.join(3, 2.0);
    assert_eq!(scene.group(), [3], "it starts its ranks beside the others");
    assert_eq!(scene.regrouped.len(), 1);
    scene.takes_part(3, 2, 2.5);
    assert_eq!(scene.generation(), (false, 6, vec![(0, 2), (2, 2), (4, 2)]));
    scene.stop(2, 3.0);
    assert_eq!(scene.generation(), (true, 4, vec![(0, 2), (2, 2)]));
    assert_eq!(scene.end().0, [2]);
    scene.gone(&[2], 3.5);
    assert!(scene.nobody_was_told_to_end() && scene.started.len() == 2);
    assert_eq!(scene.regrouped.iter().map(|(_, places)| places[0].1.restarts).max(), Some(0));
}

#[test]
fn a_node_has_one_number_whichever_was_ready_first() {
    let mut scene = Scene::elastic(2, (1, 4)).taking_part(2);
    (2..4).for_each(|id| scene.join(id, 1.0));
    [3, 2].into_iter().for_each(|id| scene.takes_part(id, 2, 2.0));
    assert_eq!(scene.generation(), (false, 8, vec![(0, 2), (2, 2), (4, 2), (6, 2)]));
    scene.say(0, ToCoordinator::Settled { generation: scene.job.generation }, 2.5);
    scene.fail(3, 6, Fault::Own, 3.0);
    let (_, end) = scene.end_at(5.0);
    assert!(end.reason.starts_with("node 3 (h3): rank 6 "), "{}", end.reason);
}

#[test]
fn no_group_goes_on_without_node_0s_own_launcher() {
    let mut scene = Scene::elastic(2, (1, 3)).taking_part(2);
    scene.lose(0, Loss::Silent(Duration::from_secs(15)), 1.0);
    assert!(scene.end_at(3.0).1.next.is_none() && scene.regrouped.is_empty());
}
