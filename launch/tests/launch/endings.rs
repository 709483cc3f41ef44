//! How a job ends, by itself or because a rank fails.

use crate::prelude::*;

#[test]
fn the_rank_that_failed_first_is_named_with_its_last_lines() {
    let job = Job::new();
    // Rank 0 fails too, but only once rank 1 is dead and fetched by the launcher.
    let script = r#"
        if [ $RANK = 1 ]; then
            for i in $(seq 30); do echo "line $i" >&2; done
            await ready
            note $$ pid
            exit 3
        fi
        trap '' TERM
        note x ready
        dead pid
        echo "connection closed by peer" >&2
        exit 4"#;
    let ended = run(job.launch_sh("-n 2", script));
    let pid = job.note("pid").unwrap();
    let named = format!("launch: rank 1 (pid {pid}) exited with code 3; its last lines:\n");
    ended.expect_code(3).expect_stderr(&(named + "    line 11\n"));
    ended.expect_stderr("\n    line 30\nlaunch: after that, rank 0 ");
    ended.expect_stderr("connection closed by peer").expect_not_in_stderr("    line 10\n");
}

#[test]
fn a_rank_that_cannot_be_executed_is_reported() {
    let job = Job::new();
    let program = job.dir().join("broken");
    // A shell writes it: a descriptor for writing that what another test starts inherits would make the program busy.
    let write = r#"echo '#!/no/such/interpreter' >"$1" && chmod 755 "$1""#;
    let written = Command::new("sh").args(["-c", write, "sh"]).arg(&program).status();
    assert!(written.unwrap().success());
    let said = format!("launch: cannot start {}: No such file", program.display());
    run(job.launch([&program])).expect_code(127).expect_stderr(&said);
}

#[test]
fn the_other_ranks_have_time_to_end_by_themselves() {
    let job = Job::new();
    let script = r#"
        if [ $RANK = 1 ]; then await ready; note $$ pid; exit 3; fi
        trap 'note x term; exit 1' TERM
        note x ready
        dead pid
        : >"$DIR/by_itself""#;
    run(job.launch_sh("-n 2", script)).expect_code(3).expect_not_in_stderr("after that");
    assert!(job.note("by_itself").is_some());
    assert_eq!(job.note("term"), None);
}

#[test]
fn ranks_that_ignore_sigterm_are_killed_within_5_s() {
    let job = Job::new();
    let script = r#"
        trap '' TERM
        note $$ pid.$RANK
        if [ $RANK = 1 ]; then await pid.0; await pid.2; : >"$DIR/failing"; exit 5; fi
        exec sleep 60"#;
    let ended = run(job.launch_sh("-n 3", script));
    let failing = fs::metadata(job.dir().join("failing")).unwrap().modified().unwrap();
    let took = failing.elapsed().unwrap();
    ended.expect_code(5).expect_stderr("did not end within 3 s and is killed");
    ended.expect_stderr("rank 0 was killed by SIGKILL");
    assert!(took < WHOLE_END, "{took:?}");
    wait_until_dead(&job.wait_for_pids(&["pid.0", "pid.1", "pid.2"]));
}

#[test]
fn a_stopped_rank_acts_on_the_sigterm_that_ends_the_job() {
    let job = Job::new();
    let script = r#"
        if [ $RANK = 0 ]; then
            trap 'note x term; exit 9' TERM
            note $$ pid.0
            kill -STOP $$
            stay
        fi
        await go
        exit 6"#;
    let running = start(job.launch_sh("-n 2", script));
    let stopped = job.wait_for_pids(&["pid.0"])[0];
    wait_until("rank 0 to stop", || state(stopped) == Some('T'));
    job.leave("go");
    let ended = running.finish();
    ended.expect_code(6).expect_stderr("rank 0 exited with code 9");
    ended.expect_not_in_stderr("did not end within");
    assert!(job.note("term").is_some());
}

#[test]
fn what_a_rank_has_started_ends_with_it() {
    let script = r#"
        sleep 60 & note $! child.$RANK
        await child.0
        await child.1
        exit $CODE"#;
    for code in ["0", "2"] {
        let job = Job::new();
        run(job.launch_sh("-n 2", script).env("CODE", code)).expect_code(code.parse().unwrap());
        wait_until_dead(&job.wait_for_pids(&["child.0", "child.1"]));
    }
}

#[test]
fn all_ranks_are_started_again_after_a_failure() {
    let job = Job::new();
    let script = r#"
        attempt=$TORCHELASTIC_RESTART_COUNT
        note "$TORCHELASTIC_MAX_RESTARTS" attempt.$attempt.$RANK
        if [ $attempt = 2 ]; then exit 0; fi
        if [ $RANK = 1 ]; then await attempt.$attempt.0; exit 3; fi
        stay"#;
    let ended = run(job.launch_sh("-n 2 --max-restarts 5", script));
    ended.expect_code(0).expect_stderr("launch: restart 1 of 5");
    ended.expect_stderr("launch: restart 2 of 5").expect_not_in_stderr("launch: restart 3");
    let ranks = ["0.0", "0.1", "1.0", "1.1", "2.0", "2.1"];
    assert_eq!(ranks.map(|it| job.note(&format!("attempt.{it}")).unwrap()), ["5"; 6]);
}

#[test]
fn a_host_whose_name_does_not_resolve_yet_says_so_and_a_signal_ends_the_wait() {
    let flags = "--nnodes 2 --node-rank 0 --master-addr nobody.invalid";
    let running = start(Job::new().launch_sh(flags, "true"));
    running.wait_for_stderr("launch: nobody.invalid does not resolve yet");
    running.signal(Signal::SIGTERM);
    assert_eq!(running.finish().code, None);
}
