//! What cannot work is refused, with the reason, before any rank starts.

use crate::prelude::*;

#[test]
fn flags_that_make_no_job_are_refused() {
    let table = [
        ("-n 0", "the world size would be 0: give at least one rank"),
        ("-n two", "expected gpu, cpu, auto or a number of ranks"),
        ("--nproc-per-node=-1", "expected gpu, cpu, auto or a number of ranks"),
        ("--nproc-per-node=", "--nproc-per-node <N>"),
        ("-n 1.5", "expected gpu, cpu, auto or a number of ranks"),
        ("-n 70000", "expected gpu, cpu, auto or a number of ranks"),
        ("--nnodes 0", "the world size would be 0: give at least one node"),
        ("--nnodes 1:4 --master-addr a", "which requires --rdzv-backend c10d"),
        ("--nnodes 4:1", "expected MIN:MAX, but 4 is more than 1"),
        ("--nnodes x", "expected a number of nodes"),
        ("--node-rank 1", "launch: --node-rank 1 is out of range for 1 node"),
        ("--nnodes 2 --node-rank 2", "launch: --node-rank 2 is out of range for 2 nodes"),
        ("--nnodes 2", "launch: --nnodes 2 requires --master-addr"),
        ("--nnodes 1:2 --rdzv-backend c10d", "launch: --nnodes 1:2 requires --rdzv-endpoint"),
        ("--rdzv-backend c10d --master-addr a", "c10d takes --rdzv-endpoint HOST:PORT"),
        ("--rdzv-backend etcd", "[possible values: static, c10d]"),
        ("--rdzv-conf timeout", "expected KEY=VALUE, as in join_timeout=60, not \"timeout\""),
        ("--rdzv-conf joint_timeout=3", "unknown key \"joint_timeout\": expected join_timeout"),
        (
            "--rdzv-conf join_timeout=soon",
            "expected 1 to 4294967295 seconds after join_timeout=, not \"soon\"",
        ),
        (
            "--rdzv-conf join_timeout=0",
            "expected 1 to 4294967295 seconds after join_timeout=, not \"0\"",
        ),
        ("--rdzv-conf is_host=maybe", "expected 0 or 1 after is_host=, not \"maybe\""),
        ("--heartbeat-timeout 0", "0 is not in 1..=86400"),
        ("--nnodes 2 --master-addr a --standalone", "launch: --standalone is for one node"),
        ("--standalone --master-port 4000", "cannot be used with '--master-port"),
        ("--master-port 0", "0 is not in 1..=65535"),
        ("--master-port 65536", "65536 is not in 1..=65535"),
        ("--master-addr 192.0.2.1", "launch: cannot listen on 192.0.2.1"),
        ("--rdzv-endpoint a:1 --master-addr b", "cannot be used with '--master-addr"),
        ("--rdzv-endpoint a:1 --master-port 2", "cannot be used with '--master-port"),
        ("--rdzv-endpoint a:1 --standalone", "cannot be used with '--standalone"),
        ("--rdzv-endpoint :1", "expected HOST:PORT, as in 10.0.0.1:29500"),
        ("--rdzv-endpoint a:b", "expected a port from 0 to 65535"),
        ("--monitor-interval 5", "unexpected argument '--monitor-interval'"),
        ("-n 2 --local-ranks-filter 0,2", "launch: --local-ranks-filter names local rank 2"),
        ("--local-ranks-filter x", "'x'"),
        ("--tee 4", "expected 0 (none), 1 (stdout), 2 (stderr) or 3 (both), not \"4\""),
        ("--tee=", "--tee <STREAMS>"),
        ("--tee x", "or 3 (both), not \"x\""),
        ("--tee 0:9", "or 3 (both), not \"9\""),
        ("--tee a:1", "\"a\" is not a local rank"),
        ("--tee 0:1,", "expected RANK:STREAMS, as in 0:1,1:2, not \"\""),
        ("--redirects 0:1,x", "expected RANK:STREAMS, as in 0:1,1:2, not \"x\""),
        ("-n2 --tee 2:1", "launch: --tee names local rank 2, but this node has local ranks 0 to 1"),
        ("--max-restarts -1", "'-1'"),
        ("--log-dir /proc/logs", "launch: cannot create a log directory in /proc/logs"),
        ("--pass-local-rank --use-env", "cannot be used with '--use-env'"),
        ("--nproc 2", "unexpected argument '--nproc'"),
    ];
    for (flags, message) in table {
        let job = Job::new();
        let ended = run(job.launch_sh(flags, "note x started"));
        assert!(matches!(ended.code, Some(1 | 2)), "{flags}: {ended:?}");
        ended.expect_stderr(message);
        assert_eq!(job.note("started"), None, "{flags}");
    }
}

#[test]
fn a_program_that_cannot_be_started_is_refused_and_one_in_this_directory_suggested() {
    let job = Job::new();
    fs::copy("/bin/true", job.dir().join("my-trainer")).unwrap();
    let plain = job.dir().join("train.py");
    fs::write(&plain, "").unwrap();
    let (plain, dir) = (plain.to_str().unwrap(), job.dir().to_str().unwrap());
    let table = [
        ("", "the program's name is empty".to_owned()),
        ("./no-trainer", "cannot start ./no-trainer: No such file or directory".to_owned()),
        ("no-trainer", "cannot start no-trainer: no such program in PATH".to_owned()),
        ("my-trainer", "(did you mean ./my-trainer?)".to_owned()),
        (dir, format!("cannot start {dir}: it is a directory")),
        (plain, format!("it is not executable (to run a Python script: python3 {plain})")),
    ];
    for (program, message) in table {
        let ended = run(job.launch(["-n", "2", program]).current_dir(job.dir()));
        ended.expect_code(1).expect_stderr("launch: ").expect_stderr(&message);
        assert_eq!(ended.stderr.lines().count(), 1, "{ended:?}");
    }
}

#[test]
fn a_missing_program_is_a_usage_error() {
    run(Job::new().launch(["-n", "2"])).expect_code(2).expect_stderr("<PROGRAM>");
}
