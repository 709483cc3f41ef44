//! Random schedules of disturbances, and what must hold after any of them. A schedule is its seed.

use super::ranks::JOIN;
use super::*;

/// The schedules of the test. Each has its number as its seed.
const SCHEDULES: u64 = 10_000;

/// How long nothing is disturbed before the job must run: enough for a partition, a wait in vain and a full restart.
const QUIET: u64 = 60_000;

impl Simulation {
    /// Disturbs the job `times` times, at random moments. `ranks_may_exit` before the others have finished.
    fn disturb(&mut self, times: usize, ranks_may_exit: bool) {
        for _ in 0..times {
            let kinds = if ranks_may_exit { 22 } else { 20 };
            let happening: Happening = match self.random.random_range(0..kinds) {
                0 => Box::new(Simulation::lose_host),
                4 => Box::new(Simulation::join_host),
                5 => Box::new(Simulation::stop_host),
                1 | 2 => Box::new(Simulation::stall),
                3 => Simulation::to_one(Simulation::cut_off),
                20.. => Simulation::to_one(Simulation::exit_too_early),
                _ => Simulation::to_one(Simulation::kill),
            };
            self.within(0..1500, happening);
            let pause = self.random.random_range(0..1500);
            self.run(pause);
        }
    }
}

#[test]
fn after_any_kills_delays_and_partitions_all_ranks_train_together_and_end_well() {
    for seed in 0..SCHEDULES {
        let mut it = Simulation::new(seed);
        it.run(2000);
        let times = it.random.random_range(1..12);
        it.disturb(times, false);
        it.pace = 1500..2500;
        it.run(QUIET);
        let living: Vec<_> = it.processes.iter().filter(|process| process.lives).collect();
        let seats = it.nodes.values().filter(|node| node.runs).map(|node| node.pids.len());
        if it.is_over {
            assert!(living.is_empty(), "seed {seed}: the job has ended, but not its ranks");
            continue;
        }
        assert_eq!(living.len(), seats.sum::<usize>(), "seed {seed}");
        let (generation, at) = it.last_step;
        let idle = it.now - at;
        assert!(idle < 5000, "seed {seed}: the ranks have not trained for {idle} ms");
        let place = |it: &Seated| (it.generation, it.world_size);
        let expected = Some((generation, living.len() as u32));
        let all_are_there = living.iter().all(|it| it.seated.as_ref().map(place) == expected);
        assert!(all_are_there, "seed {seed}: not all ranks train in generation {generation}");
        // The last steps, which are disturbed as well.
        it.pace = 50..150;
        it.goal = it.processes.iter().filter_map(|process| process.steps).max().unwrap_or(0) + 3;
        let times = it.random.random_range(0..4);
        it.disturb(times, true);
        // All may have to start again, and to do all steps again, after some have waited in vain.
        it.run(JOIN + 5 * QUIET);
        let (restarts, most) = (it.job.restarts, it.job.terms.own.max_restarts);
        assert!(it.job.is_over(), "seed {seed}: the job does not end");
        assert!(it.has_succeeded || restarts == most, "seed {seed}: the job has failed");
        assert!(!it.processes.iter().any(|process| process.lives), "seed {seed}: ranks are left");
    }
}

#[test]
fn a_thousand_nodes_agree_in_one_message_to_the_coordinator_and_one_to_each_of_them() {
    let mut it = Simulation::of(1000, 1, 1, StdRng::seed_from_u64(0));
    // The others have long gone on when another rank is there.
    it.delay = 2;
    it.run(2000);
    let (lost, before) = (it.processes.len() / 2, it.messages);
    assert!(it.last_step.1 > 1000, "all train");
    it.kill(lost);
    let is_without = |it: &Simulation| it.last_step.0 == 1;
    let began = it.now;
    while !is_without(&it) && it.now < began + 5000 {
        it.run(1);
    }
    assert!(is_without(&it));
    assert_eq!(it.messages - before, 1 + 1000);
    // The kill is noticed, told and answered, the ranks meet, and take a step.
    assert!(it.now - began <= 5 * it.delay + it.pace.end, "it took {} ms", it.now - began);
}
