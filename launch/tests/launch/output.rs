//! Where the output of the ranks goes.

use crate::prelude::*;

const SPEAK: &str = r#"echo "out $RANK"; echo "err $RANK" >&2"#;

fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines
}

#[test]
fn by_default_both_streams_pass_through_unchanged() {
    let ended = run(Job::new().launch_sh("-n 2", SPEAK));
    assert_eq!(sorted(&ended.expect_code(0).stdout), ["out 0", "out 1"]);
    assert_eq!(sorted(&ended.stderr), ["err 0", "err 1"]);
}

#[test]
fn tee_puts_the_rank_before_each_line_and_the_bytes_into_files() {
    let job = Job::new();
    let flags = "-t 3 --log-dir logs -n 2";
    let script = r#"printf 'one\n\ntwo \377 end of %s' $RANK; echo "err" >&2"#;
    let nodes = Nodes::new(2);
    let first = nodes.start(&job, 0, "-n 2", "");
    let ended = run(nodes.launch(&job, 1, flags, script).current_dir(job.dir()));
    first.finish().expect_code(0);
    ended.expect_code(0).expect_stderr("[rank2]: err\n").expect_stderr("[rank3]: err\n");
    let expected = ["2", "3"].map(|rank| {
        ["", "one", &format!("two \u{fffd} end of {rank}")].map(|it| format!("[rank{rank}]: {it}"))
    });
    assert_eq!(sorted(&ended.stdout), expected.concat());
    let logs = job.logs("logs");
    assert!(logs.file_name().unwrap().to_str().unwrap().starts_with("none_"));
    for (local_rank, rank) in [(0, "2"), (1, "3")] {
        let dir = logs.join(format!("attempt_0/{local_rank}"));
        let stdout = [b"one\n\ntwo \xff end of ", rank.as_bytes()].concat();
        assert_eq!(fs::read(dir.join("stdout.log")).unwrap(), stdout);
        assert_eq!(fs::read(dir.join("stderr.log")).unwrap(), b"err\n");
    }
}

#[test]
fn a_log_dir_alone_means_tee() {
    let job = Job::new();
    let ended = run(job.launch_sh("--log-dir logs", SPEAK).current_dir(job.dir()));
    assert_eq!(ended.expect_code(0).expect_stderr("[rank0]: err 0\n").stdout, "[rank0]: out 0\n");
    let dir = job.logs("logs").join("attempt_0/0");
    assert_eq!(fs::read_to_string(dir.join("stdout.log")).unwrap(), "out 0\n");
}

#[test]
fn redirected_streams_go_to_files_only_in_a_directory_that_is_named() {
    let job = Job::new();
    let ended = run(job.launch_sh("-n 2 --redirects 3", SPEAK));
    let logs = job.logs("");
    assert_eq!(ended.expect_code(0).stdout, "");
    assert_eq!(ended.stderr, format!("launch: logs are in {}\n", logs.display()));
    for rank in [0, 1] {
        let dir = logs.join(format!("attempt_0/{rank}"));
        assert_eq!(fs::read_to_string(dir.join("stdout.log")).unwrap(), format!("out {rank}\n"));
        assert_eq!(fs::read_to_string(dir.join("stderr.log")).unwrap(), format!("err {rank}\n"));
    }
}

#[test]
fn streams_can_be_chosen_by_rank() {
    let job = Job::new();
    let ended = run(job.launch_sh("-n 3 --tee 0:1 --redirects 1:2", SPEAK));
    assert_eq!(sorted(&ended.expect_code(0).stdout), ["[rank0]: out 0", "out 1", "out 2"]);
    ended.expect_stderr("err 0\n").expect_stderr("err 2\n").expect_not_in_stderr("err 1");
    let logs = job.logs("").join("attempt_0");
    assert_eq!(fs::read_to_string(logs.join("0/stdout.log")).unwrap(), "out 0\n");
    assert_eq!(fs::read_to_string(logs.join("1/stderr.log")).unwrap(), "err 1\n");
    assert!(!logs.join("0/stderr.log").exists());
    assert!(!logs.join("2").exists());
}

#[test]
fn the_console_shows_only_the_local_ranks_of_the_filter() {
    let (job, nodes) = (Job::new(), Nodes::new(2));
    let first = nodes.start(&job, 0, "-n 4", "");
    let ended = run(nodes.launch(&job, 1, "-n 4 --local-ranks-filter 1,3", SPEAK));
    first.finish().expect_code(0);
    assert_eq!(sorted(&ended.expect_code(0).stdout), ["out 5", "out 7"]);
    assert_eq!(sorted(&ended.stderr), ["err 5", "err 7"]);
}

#[test]
fn what_the_filter_hides_is_in_the_files_and_in_the_report_of_a_failure() {
    let job = Job::new();
    let script = format!("{SPEAK}; if [ $RANK = 1 ]; then await spoken; exit 1; fi; note x spoken");
    let ended = run(job.launch_sh("-n 2 --tee 3 --local-ranks-filter 0", &script));
    assert_eq!(ended.expect_code(1).stdout, "[rank0]: out 0\n");
    ended.expect_not_in_stderr("[rank1]: err 1").expect_stderr("    err 1\n");
    let dir = job.logs("").join("attempt_0/1");
    assert_eq!(fs::read_to_string(dir.join("stdout.log")).unwrap(), "out 1\n");
    assert_eq!(fs::read_to_string(dir.join("stderr.log")).unwrap(), "err 1\n");
}

#[test]
fn every_attempt_has_its_own_logs() {
    let job = Job::new();
    let script = r#"echo "$TORCHELASTIC_RESTART_COUNT"; exit 1"#;
    run(job.launch_sh("-r 1 --max-restarts 1", script)).expect_code(1);
    for attempt in [0, 1] {
        let log = job.logs("").join(format!("attempt_{attempt}/0/stdout.log"));
        assert_eq!(fs::read_to_string(log).unwrap(), format!("{attempt}\n"));
    }
}

#[test]
fn lines_of_different_ranks_never_mix() {
    let script = r#"for i in $(seq 200); do printf 'aaaa'; printf 'bbbb\n'; done"#;
    let ended = run(Job::new().launch_sh("-n 4 --tee 1", script));
    let lines = sorted(&ended.expect_code(0).stdout);
    assert_eq!(lines.len(), 800);
    for (rank, lines) in lines.chunks(200).enumerate() {
        let expected = format!("[rank{rank}]: aaaabbbb");
        assert!(lines.iter().all(|line| *line == expected), "{lines:?}");
    }
}

#[test]
fn a_slow_reader_gets_all_of_the_output() {
    let job = Job::new();
    // More than the pipe to the reader holds, and less than all pipes: the rank can end before anything is read.
    let inner = job.launch_sh("--tee 1", "yes 0123456789 | head -n 8000; note $$ pid");
    let mut shell = job.clean("sh");
    let reader = r#""$0" "$@" | (
        while [ ! -e "$DIR/pid" ] || [ -e "/proc/$(cat "$DIR/pid")" ]; do sleep 0.01; done
        sleep 1.5
        cat)"#;
    let ended = run(shell.args(["-c", reader]).arg(inner.get_program()).args(inner.get_args()));
    assert_eq!(ended.expect_code(0).stdout.lines().count(), 8000);
}

#[test]
fn a_reader_that_leaves_does_not_end_the_job() {
    let job = Job::new();
    let inner = job.launch_sh("--tee 1", "yes 0123456789 | head -n 100000; note x over");
    let mut shell = job.clean("sh");
    let head = ["-c", "\"$0\" \"$@\" | head -n 1"];
    let ended = run(shell.args(head).arg(inner.get_program()).args(inner.get_args()));
    assert_eq!(ended.expect_code(0).stdout, "[rank0]: 0123456789\n");
    assert!(job.note("over").is_some());
}

#[test]
fn a_process_that_leaves_the_ranks_group_does_not_hold_the_launcher() {
    let job = Job::new();
    let script = r#"setsid sh -c 'echo $$ > "$DIR/.pid" && mv "$DIR/.pid" "$DIR/pid"; exec sleep 60 >/dev/null' &
        await pid
        echo done >&2
        await read"#;
    let running = start(job.launch_sh("", script));
    running.wait_for_stderr("done\n");
    job.leave("read");
    let ended = running.finish();
    // It still holds stderr when the launcher is over.
    let daemon = job.wait_for_pids(&["pid"])[0];
    kill(Pid::from_raw(daemon), Signal::SIGKILL).unwrap();
    assert_eq!(ended.expect_code(0).stderr, "done\n");
}

#[test]
fn the_streams_of_ranks_that_fail_together_are_waited_for_together() {
    let job = Job::new();
    let script = r#"setsid sh -c 'echo $$ > "$DIR/.$RANK" && mv "$DIR/.$RANK" "$DIR/$RANK"; exec sleep 60' >/dev/null &
        for rank in $(seq 0 19); do await $rank; done
        exit 3"#;
    let ranks: Vec<_> = (0..20).map(|rank| rank.to_string()).collect();
    let running = start(job.launch_sh("-n 20", script));
    let daemons = job.wait_for_pids(&ranks.iter().map(String::as_str).collect::<Vec<_>>());
    let before = Instant::now();
    let ended = running.finish();
    let took = before.elapsed();
    daemons.into_iter().for_each(|pid| kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap());
    ended.expect_code(3);
    // One after the other takes 0.5 s for each, twice.
    assert!(took < Duration::from_secs(8), "{took:?}");
}
