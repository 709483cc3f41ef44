use super::*;
use crate::distributed::fault::{blame::may_be_anothers_fault, process::Process};
use c10d_sys::Store;
use std::process::{Command, Stdio};
use std::thread;

/// A group in one process, with these ranks of the job.
struct World {
    store: Arc<Store>,
    members: Vec<Member>,
}

impl World {
    fn new(names: &[usize]) -> World {
        let member = |(rank, &name)| Member::new(rank, name);
        let members = names.iter().enumerate().map(member).collect();
        World { store: Arc::new(Store::hash().unwrap()), members }
    }

    fn rank(&self, rank: usize) -> PostMortem {
        let store = Arc::clone(&self.store);
        PostMortem::new(store, rank, self.members.len(), self.members.clone(), false)
    }

    fn report(&self, rank: usize, report: Report) {
        report.leave(&self.store, rank).unwrap();
    }
}

fn look_until_found(rank: &PostMortem) -> Blame {
    rank.search.look_until_found(Instant::now() + SEARCH).unwrap().unwrap()
}

/// A process that has been killed, as it was before.
fn killed() -> (u32, Option<Process>) {
    let mut child = Command::new("sleep").arg("60").stdin(Stdio::null()).spawn().unwrap();
    let process = Process::of(child.id());
    child.kill().unwrap();
    child.wait().unwrap();
    (child.id(), process)
}

#[test]
fn a_killed_process_is_named() {
    let mut world = World::new(&[0, 1, 2]);
    let (pid, process) = killed();
    world.members[2].process = process;
    let expected = Some(Blame::of(2, format!("(pid {pid}) has ended")));
    assert_eq!(world.rank(0).gone(Member::ended), expected);
    assert_eq!(world.rank(1).blame(), expected);
}

#[test]
fn a_stopped_process_may_go_on() {
    let mut child = Command::new("sleep").arg("60").stdin(Stdio::null()).spawn().unwrap();
    let pid = nix::unistd::Pid::from_raw(child.id() as i32);
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGSTOP).unwrap();
    let mut world = World::new(&[0, 1]);
    world.members[1].process = Process::of(child.id());
    while world.members[1].gone().is_none() {
        std::thread::yield_now();
    }
    let rank = world.rank(0);
    let found = (rank.gone(Member::ended), rank.all_gone_but(&[0]), rank.gone(Member::gone));
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!((found.0, found.1), (None, false));
    assert_eq!(found.2.unwrap().what, format!("rank 1 (pid {pid}) is stopped"));
}

#[test]
fn members_of_a_group_are_named_as_the_job_knows_them() {
    let mut world = World::new(&[2, 5, 7]);
    let blame = |world: &World| look_until_found(&world.rank(0));
    assert!(blame(&world).what.starts_with("ranks [5, 7] run"));
    // The processes of another host cannot be seen.
    world.members[1].process = None;
    assert_eq!(blame(&world).rank, Some(5));
    world.members[2].process = None;
    assert!(blame(&world).what.starts_with("no word from ranks [5, 7]"));
    world.rank(2).report("no space left", ANSWER);
    assert_eq!(blame(&world), Blame::of(7, "reports: no space left"));
}

#[test]
fn a_reported_fault_is_passed_on() {
    let mut world = World::new(&[0, 1, 2]);
    world.rank(1).report("its weights have another shape", ANSWER);
    let reported = "rank 1 reports: its weights have another shape";
    assert_eq!(world.rank(2).blame().unwrap().what, reported);
    // Even if its process has ended since.
    world.members[1].process = killed().1;
    assert_eq!(world.rank(2).gone(Member::ended).unwrap().what, reported);
}

#[test]
fn rank_0_waits_for_no_rank_that_has_failed_on_its_own() {
    let world = World::new(&[0, 1, 2]);
    let deadline = Instant::now() + Duration::from_secs(60);
    (0..3).for_each(|rank| world.report(rank, Report::Fault("no data".into())));
    world.rank(0).let_the_others_look(deadline);
    assert!(Instant::now() < deadline);
}

#[test]
fn rank_0_waits_for_a_rank_that_has_yet_to_look_and_counts_each_once() {
    let world = World::new(&[0, 1, 2, 3]);
    world.report(3, Report::Fault("no data".into()));
    let (first, second) = (world.rank(0), world.rank(1));
    thread::scope(|scope| {
        let rank_0 = scope.spawn(|| {
            first.report("lost", ANSWER);
            first.let_the_others_look(Instant::now() + Duration::from_secs(60));
            // Otherwise it has not waited.
            world.store.check("rank 2 looks").unwrap()
        });
        (0..3).for_each(|_| drop(second.blame()));
        world.store.set("rank 2 looks", &[]).unwrap();
        world.rank(2).blame();
        assert!(rank_0.join().unwrap());
    });
}

#[test]
fn a_victim_is_not_blamed() {
    let mut world = World::new(&[0, 1, 2]);
    world.members[1..].iter_mut().for_each(|member| member.process = killed().1);
    world.report(1, Report::Victim);
    let first = world.rank(0);
    assert_eq!(first.gone(Member::ended).unwrap().rank, Some(2));
    assert_eq!(look_until_found(&first).rank, Some(2));
    world.report(2, Report::Victim);
    assert_eq!(first.gone(Member::ended).unwrap().rank, None);
}

#[test]
fn of_ranks_that_run_the_one_whose_exchange_has_not_failed_is_named() {
    let world = World::new(&[0, 1, 2]);
    world.report(1, Report::Victim);
    let blame = look_until_found(&world.rank(0));
    assert_eq!(blame.rank, Some(2), "{blame:?}");
    assert!(blame.what.starts_with("rank 2 runs, but has not failed"), "{blame:?}");
}

#[test]
fn a_store_that_does_not_answer_is_rank_0s_fault_only_if_rank_0_is_gone() {
    let mut world = World::new(&[0, 1]);
    assert_eq!(world.rank(1).silent_store().rank, None);
    world.members[0].process = killed().1;
    assert_eq!(world.rank(1).silent_store().rank, Some(0));
    // torchrun serves the store.
    let with_agent = PostMortem { agent_store: true, ..world.rank(1) };
    assert_eq!(with_agent.silent_store().rank, None);
}

#[test]
fn only_a_broken_connection_to_the_store_says_that_its_server_has_ended() {
    let rank_1 = World::new(&[0, 1]).rank(1);
    assert_eq!(rank_1.unusable_store(ErrorKind::Connection).rank, Some(0));
    assert_eq!(rank_1.unusable_store(ErrorKind::Timeout).rank, None);
    let with_agent = PostMortem { agent_store: true, ..rank_1 };
    assert_eq!(with_agent.unusable_store(ErrorKind::Connection).rank, None);
}

#[test]
fn rank_0_of_the_job_serves_the_store_in_whatever_group_it_is() {
    let server_of = |names: &[usize]| {
        let world = World::new(names);
        (0..names.len()).find(|&rank| world.rank(rank).search.serves_store)
    };
    assert_eq!(server_of(&[0, 1]), Some(0));
    assert_eq!(server_of(&[2, 0]), Some(1));
    assert_eq!(server_of(&[1, 2]), None);
}

#[test]
fn who_is_needed_no_longer_is_not_missed() {
    let mut world = World::new(&[0, 1, 2]);
    world.members[1].process = killed().1;
    // Rank 1 knew and has ended; rank 2 still has to be told.
    assert!(!world.rank(0).all_gone_but(&[0, 1]));
    assert!(world.rank(0).all_gone_but(&[0, 2]));
}

#[test]
fn only_a_broken_exchange_may_be_anothers_fault() {
    let may_be = |kind| may_be_anothers_fault(&Error::new(kind, ""));
    assert_eq!([ErrorKind::Connection, ErrorKind::Timeout].map(may_be), [true; 2]);
    let others = [ErrorKind::Misuse, ErrorKind::Unfinished, ErrorKind::Other];
    assert_eq!(others.map(may_be), [false; 3]);
}
