//! Which of the ranks that failed is named, and the reason that it has left in `TORCHELASTIC_ERROR_FILE`.

use crate::prelude::*;

#[test]
fn the_rank_with_a_fault_of_its_own_is_named_though_its_victim_ended_first() {
    let job = Job::new();
    let script = r#"note $$ pid.$RANK
        if [ $RANK = 1 ]; then victim "lost rank 0"; exit 4; fi
        dead pid.1; reason "disk full"; echo "disk full" >&2; exit 3"#;
    let ended = run(job.launch_sh("-n 2", script));
    let pid = job.note("pid.0").unwrap();
    let named = format!("disk full\nlaunch: rank 0 (pid {pid}) exited with code 3: disk full\n");
    let rest = "launch: after that, rank 1 exited with code 4\n";
    assert_eq!(ended.expect_code(3).stderr, named + rest);
}

#[test]
fn the_first_of_several_reasons_is_given() {
    let script = r#"trap '' TERM; note $$ pid.$RANK
        if [ $RANK = 0 ]; then dead pid.1; reason "connection closed"; exit 3; fi
        await pid.0; reason "no data"; exit 4"#;
    let ended = run(Job::new().launch_sh("-n 2", script));
    let said = "exited with code 4: no data\nlaunch: after that, rank 0 exited";
    ended.expect_code(4).expect_stderr(said);
}

#[test]
fn a_rank_that_stays_after_it_has_left_its_reason_is_named_though_launch_ends_it() {
    let script = r#"note $$ pid.$RANK
        if [ $RANK = 0 ]; then reason "disk full"; note x told; stay; fi
        await told; victim "lost rank 0"; exit 4"#;
    let job = Job::new();
    let ended = run(job.launch_sh("-n 2", script));
    let pid = job.note("pid.0").unwrap();
    ended.expect_code(1).expect_stderr(&format!("launch: rank 0 (pid {pid}) failed: disk full\n"));
}

#[test]
fn a_killed_rank_is_named_before_those_that_have_lost_their_connection_to_it() {
    let script = r#"trap '' TERM; note $$ pid.$RANK
        if [ $RANK = 1 ]; then await pid.0; kill -KILL $$; fi
        dead pid.1; reason "connection closed by peer"; exit 4"#;
    let ended = run(Job::new().launch_sh("-n 2", script));
    ended.expect_code(128 + 9).expect_stderr("launch: after that, rank 0 exited with code 4\n");
    ended.expect_stderr(" was killed by SIGKILL; it wrote nothing to stderr\n");
}

#[test]
fn a_victim_is_named_if_nobody_else_has_failed() {
    let script = r#"if [ $RANK = 0 ]; then stay; fi
        victim "rank 0 does not answer"; exit 4"#;
    let ended = run(Job::new().launch_sh("-n 2", script));
    ended.expect_code(4).expect_stderr("exited with code 4: rank 0 does not answer\n");
    ended.expect_stderr("launch: after that, rank 0 was killed by SIGTERM\n");
}

#[test]
fn the_last_lines_follow_the_reason_only_if_the_console_has_not_shown_them() {
    let job = Job::new();
    let script = r#"reason "no data"; echo "line 7 of main.py" >&2; exit 3"#;
    let ended = run(job.launch_sh("--redirects 2", script));
    let log = job.logs("").join("attempt_0/0/stderr.log");
    let log = format!("(all of stderr in {}):\n    line 7 of main.py\n", log.display());
    let said = format!("exited with code 3: no data; its last lines {log}");
    ended.expect_code(3).expect_stderr(&said);
}

#[test]
fn a_reason_of_an_earlier_attempt_is_forgotten() {
    let script = r#"[ $TORCHELASTIC_RESTART_COUNT = 1 ] || reason "disk full"; exit 3"#;
    let ended = run(Job::new().launch_sh("--max-restarts 1", script));
    ended.expect_code(3).expect_stderr("exited with code 3: disk full\n");
    ended.expect_stderr("exited with code 3; it wrote nothing to stderr\n");
}

#[test]
fn the_files_of_the_reasons_go_with_the_launcher_even_if_it_is_killed() {
    let job = Job::new();
    let script = r#"note $$ pid.0; reason "disk full"; note "$TORCHELASTIC_ERROR_FILE" file; stay"#;
    let running = start(job.launch_sh("", script));
    let file = job.wait_for_note("file");
    assert!(fs::exists(&file).unwrap());
    running.signal(Signal::SIGKILL);
    wait_until_dead(&job.wait_for_pids(&["pid.0"]));
    wait_until("the file to be removed", || !fs::exists(&file).unwrap());
    let directory = std::path::Path::new(&file).parent().unwrap();
    wait_until("its directory to be removed", || !fs::exists(directory).unwrap());
}
