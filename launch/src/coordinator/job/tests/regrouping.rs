//! Ranks that are lost and replaced while the others run.

use super::*;

impl Scene {
    fn takes_part(&mut self, id: NodeId, ranks: u16, at: f64) {
        let claim = Claim { number: 0, ranks };
        self.event(id, Event::Said(ToCoordinator::TakesPart(claim)), at);
    }

    fn lose_rank(&mut self, id: NodeId, rank: u32, left: u16, at: f64) {
        let failure = Failure::example(rank, Fault::Own, self.at(at));
        let claim = Claim { number: 0, ranks: left };
        self.event(id, Event::Said(ToCoordinator::Lost { failure, claim }), at);
    }

    /// Of the last generation: whether a rank is lost, the number of ranks, and each node's first rank and
    /// number of ranks.
    fn generation(&self) -> (bool, u32, Vec<(u32, u16)>) {
        let (is_loss, places) = self.regrouped.last().unwrap();
        let nodes =
            places.iter().map(|(_, place, claim)| (place.first_rank, claim.ranks)).collect();
        (*is_loss, places[0].1.world_size, nodes)
    }
}

#[test]
fn without_a_lost_rank_the_others_go_on_and_then_with_the_one_in_its_place() {
    let mut scene = Scene::running(3);
    (0..3).for_each(|id| scene.takes_part(id, 2, 0.5));
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
    let mut scene = Scene::running(2);
    (0..2).for_each(|id| scene.takes_part(id, 2, 0.5));
    scene.lose_rank(1, 3, 1, 1.0);
    scene.lose_rank(0, 1, 1, 2.0);
    scene.pass(3.0);
    let (_, end) = scene.end();
    assert_eq!((scene.regrouped.len(), end.next, end.culprit), (1, None, Some(1)));
}

#[test]
fn if_another_nodes_ranks_take_no_part_all_start_again() {
    let mut scene = Scene::running(2);
    scene.takes_part(1, 2, 0.5);
    scene.lose_rank(1, 3, 1, 1.0);
    scene.pass(2.0);
    let next = scene.end().1.next;
    assert_eq!(next.as_deref(), Some("restart 1 of 1: starting all ranks again"));
    assert!(scene.regrouped.is_empty());
}

#[test]
fn if_node_0_has_no_rank_left_all_start_again() {
    let mut scene = Scene::running(2);
    (0..2).for_each(|id| scene.takes_part(id, 1, 0.5));
    scene.lose_rank(0, 0, 0, 1.0);
    scene.pass(2.0);
    assert!(scene.end().1.next.is_some() && scene.regrouped.is_empty());
}

#[test]
fn a_group_that_fails_without_a_loss_is_made_anew_once() {
    let mut scene = Scene::running(2);
    (0..2).for_each(|id| scene.takes_part(id, 2, 0.5));
    for id in 0..2 {
        scene.event(id, Event::Said(ToCoordinator::Broken { generation: 0 }), 1.0);
    }
    assert_eq!(scene.generation(), (true, 4, vec![(0, 2), (2, 2)]));
    assert_eq!(scene.regrouped.len(), 1, "the second speaks of a generation that is over");
}

#[test]
fn an_elastic_job_goes_on_without_a_node_that_is_lost_or_leaves_and_takes_in_one_that_joins() {
    let mut scene = Scene::elastic(3, (1, 3));
    (0..3).for_each(|id| scene.takes_part(id, 2, 0.5));
    scene.lose(1, Loss::Closed, 1.0);
    assert_eq!(scene.generation(), (true, 4, vec![(0, 2), (2, 2)]));
    scene.join(3, 2.0);
    assert_eq!(scene.group(), [3], "it starts its ranks beside the others");
    assert_eq!(scene.regrouped.len(), 1);
    scene.takes_part(3, 2, 2.5);
    assert_eq!(scene.generation(), (false, 6, vec![(0, 2), (2, 2), (4, 2)]));
    scene.stop(2, 3.0);
    assert_eq!(scene.generation(), (true, 4, vec![(0, 2), (2, 2)]));
    scene.gone(&[2], 3.5);
    assert!(scene.nobody_was_told_to_end() && scene.started.len() == 2);
    let restarts = scene.regrouped.iter().map(|(_, places)| places[0].1.restarts);
    assert_eq!(restarts.max(), Some(0));
}
