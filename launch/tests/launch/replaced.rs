//! Ranks that take part in a job whose ranks come and go. They are Python programs that use nothing but the socket.

use crate::prelude::*;

/// How each of them begins. `number` is the generation of its first place: 0 for the ranks that start with the job.
const RANK: &str = include_str!("replaced.py");

/// Runs three ranks that begin like this and continue with `then`. One may be replaced.
fn run_three(then: &str) -> Ended {
    run(Job::new().launch_python("-n 3 --max-restarts 1 --tee 1", &format!("{RANK}{then}")))
}

#[test]
fn a_rank_that_fails_after_all_have_finished_fails_the_job() {
    let ended = run_three("assert finish(place) == 'leave'\nexit(3 if rank == '1' else 0)");
    ended.expect_code(3).expect_stderr("restart 1 of 1: starting all ranks again\n");
    ended.expect_stderr("launch: rank 1 (pid ");
}

#[test]
fn after_a_rank_that_is_lost_before_the_last_has_finished_all_finish_again() {
    let then = "
others = [os.path.join(os.environ['DIR'], rank) for rank in '02']
if rank == '1' and number == 0:
    while not all(map(os.path.exists, others)):
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGKILL)
open(os.path.join(os.environ['DIR'], rank), 'w').close()
told = finish(place)
while told != 'leave':
    place = told['place']
    told = finish(place)
print(place['variables']['RANK'], place['generation'], flush=True)";
    let ended = run_three(then);
    ended.expect_code(0).expect_stderr("restart 1 of 1: 2 ranks go on, and another one takes");
    let mut lines: Vec<_> = ended.stdout.lines().collect();
    lines.sort_unstable();
    // The lines of ranks that go on begin with their new numbers.
    for (rank, line) in lines.iter().enumerate() {
        let generation = line.strip_prefix(&format!("[rank{rank}]: {rank} "));
        assert!(generation.is_some_and(|number| number != "0"), "{lines:?}");
    }
    assert!(lines.len() >= 2, "{lines:?}");
}

#[test]
fn a_rank_that_exits_before_the_others_have_finished_is_not_waited_for() {
    let then = "
if rank == '0':
    exit(0)
assert finish(place) == 'leave'";
    run_three(then).expect_code(0);
}

#[test]
fn a_rank_that_takes_part_after_another_has_exited_gets_its_place() {
    let job = Job::new();
    let begin = "[ $RANK = 0 ] && note $$ pid && exit; dead pid";
    let script = format!("{begin}; python3 -c '{RANK}' && note x took_part");
    run(job.launch_sh("-n 2 --max-restarts 1", &script)).expect_code(0);
    assert!(job.note("took_part").is_some());
}
