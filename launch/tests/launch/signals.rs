//! Signals to the launcher reach the ranks, and no rank outlives it.

use crate::prelude::*;

/// `note_pids` leaves the process ids of a rank and of a child of it.
const NOTE_PIDS: &str = "note_pids() { sleep 60 & note $! child.$RANK; note $$ pid.$RANK; }; ";

const PIDS: [&str; 4] = ["pid.0", "pid.1", "child.0", "child.1"];

fn launched(flags: &str, script: &str) -> (Job, Running, Vec<i32>) {
    let job = Job::new();
    let running = start(job.launch_sh(&format!("-n 2 {flags}"), &format!("{NOTE_PIDS}{script}")));
    let pids = job.wait_for_pids(&PIDS);
    (job, running, pids)
}

#[test]
fn a_signal_to_the_launcher_is_forwarded() {
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT] {
        let name = &signal.as_str()["SIG".len()..];
        let script = format!("trap 'note {name} got.$RANK; exit 0' {name}; note_pids; stay");
        let (job, running, pids) = launched("", &script);
        running.signal(signal);
        let ended = running.finish();
        ended.expect_code(128 + signal as i32).expect_not_in_stderr("exited with code");
        ended.expect_stderr(&format!("launch: forwarding {signal} to the ranks\n"));
        wait_until_dead(&pids);
        assert_eq!(["got.0", "got.1"].map(|rank| job.note(rank).unwrap()), [name; 2]);
    }
}

#[test]
fn ranks_that_ignore_sigint_are_killed_after_the_grace() {
    let (_job, running, pids) = launched("", "trap '' INT; note_pids; stay");
    running.signal(Signal::SIGINT);
    running.finish().expect_code(130).expect_stderr("did not end within 3 s");
    wait_until_dead(&pids);
}

#[test]
fn a_second_sigint_kills_at_once() {
    let (_job, running, pids) = launched("", "trap '' INT; note_pids; stay");
    running.signal(Signal::SIGINT);
    running.wait_for_stderr("forwarding SIGINT");
    running.signal(Signal::SIGINT);
    running.finish().expect_code(130).expect_not_in_stderr("did not end within");
    wait_until_dead(&pids);
}

#[test]
fn a_signal_prevents_a_restart() {
    let (_job, running, _) = launched("--max-restarts 3", "trap 'exit 1' TERM; note_pids; stay");
    running.signal(Signal::SIGTERM);
    running.finish().expect_code(143).expect_not_in_stderr("restart");
}

#[test]
fn a_signal_after_a_failure_prevents_a_restart_and_leaves_the_culprits_exit_code() {
    let job = Job::new();
    let script = "note $$ pid.$RANK; [ $RANK = 0 ] || { await pid.0; exit 3; }; trap '' TERM; stay";
    let running = start(job.launch_sh("-n 2 --max-restarts 3", script));
    let failed = job.wait_for_pids(&["pid.1"])[0];
    wait_until("launch to fetch rank 1", || state(failed).is_none());
    running.signal(Signal::SIGTERM);
    let ended = running.finish();
    ended.expect_code(3).expect_not_in_stderr("restart");
    ended.expect_stderr(&format!("launch: rank 1 (pid {failed}) exited with code 3"));
}

#[test]
fn nothing_outlives_a_launcher_killed_with_sigkill() {
    // The ranks of the second job are stopped.
    for script in ["trap '' INT TERM HUP; note_pids; stay", "note_pids; kill -STOP $$"] {
        let (_job, running, pids) = launched("", script);
        running.signal(Signal::SIGKILL);
        wait_until_dead(&pids);
    }
}

#[test]
fn the_ranks_die_with_the_launcher_even_when_its_guard_is_killed_first() {
    let job = Job::new();
    let running = start(job.launch_sh("-n 2", "trap '' INT TERM HUP; note $$ pid.$RANK; stay"));
    let pids = job.wait_for_pids(&["pid.0", "pid.1"]);
    let guard = children(running.pid(), "__guard");
    assert_eq!(guard.len(), 1);
    kill(Pid::from_raw(guard[0]), Signal::SIGKILL).unwrap();
    wait_until_dead(&guard);
    running.signal(Signal::SIGKILL);
    wait_until_dead(&pids);
}

#[test]
fn a_signal_to_all_processes_of_a_job_leaves_nothing_behind() {
    let (job, running, pids) = launched("", "note_pids; stay");
    let guard = children(running.pid(), "__guard")[0];
    wait_until("the guard to catch SIGTERM", || {
        let status = fs::read_to_string(format!("/proc/{guard}/status")).unwrap();
        let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap().trim();
        u64::from_str_radix(mask, 16).unwrap() & (1 << (Signal::SIGTERM as u32 - 1)) != 0
    });
    kill(Pid::from_raw(guard), Signal::SIGTERM).unwrap();
    running.signal(Signal::SIGTERM);
    running.finish().expect_code(143);
    wait_until_dead(&pids);
    let left = fs::read_dir(job.dir()).unwrap().map(|entry| entry.unwrap().path());
    assert_eq!(left.filter(|path| path.is_dir()).count(), 0);
}

#[test]
fn ranks_end_as_always_under_a_parent_that_ignores_the_end_of_children() {
    let script = "note $$ pid.$RANK; [ $RANK = 0 ] || { dead pid.0; exit 3; }";
    let (_job, running) = launched_with_ignored("CHLD", script);
    running.finish().expect_code(3).expect_stderr("launch: rank 1 (pid");
}

#[test]
fn under_nohup_a_job_survives_the_terminal() {
    let (job, running) = launched_with_ignored("HUP", "note $$ pid.$RANK; await go");
    running.signal(Signal::SIGHUP);
    job.leave("go");
    running.finish().expect_code(0);
}

#[test]
fn a_job_in_the_background_of_a_script_still_ends_on_sigint() {
    // A shell starts `launch … &` with SIGINT ignored; a rank that inherited that would never end.
    let (_job, running) = launched_with_ignored("INT", "note $$ pid.$RANK; stay");
    running.signal(Signal::SIGINT);
    running.finish().expect_code(130).expect_not_in_stderr("did not end within");
}

#[test]
fn the_helpers_of_launch_do_nothing_by_hand() {
    let job = Job::new();
    run(job.launch(["__rank"])).expect_code(1).expect_stderr("not for use by hand");
    run(job.launch(["__rank", "1", "sh", "-c", "echo started"])).expect_code(1);
    run(job.launch(["__guard"])).expect_code(0);
}

/// A job whose two ranks have left their process ids, and whose launcher was started with a signal ignored.
fn launched_with_ignored(signal: &str, script: &str) -> (Job, Running) {
    let job = Job::new();
    let inner = job.launch_sh("-n 2", script);
    let mut command = job.clean("sh");
    command.args(["-c", &format!("trap '' {signal}; exec \"$0\" \"$@\"")]);
    // Without what sets the signals right for other tests.
    let running = start(command.args(inner.get_args().skip(1)));
    job.wait_for_pids(&PIDS[..2]);
    (job, running)
}
