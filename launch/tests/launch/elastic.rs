//! Jobs whose nodes come and go.

use crate::prelude::*;

/// Every rank leaves a note and stays. A generation's notes are complete once all its ranks have left one.
const STAY: &str = r#"
    note "$$" "pid.$WORLD_SIZE.$RANK.$NODE"
    note "$TORCHELASTIC_RESTART_COUNT" "restarts.$WORLD_SIZE.$RANK"
    stay"#;

fn node(nodes: &Nodes, job: &Job, name: &str) -> Running {
    start(nodes.launch(job, 0, "--rdzv-conf last_call_timeout=1", STAY).env("NODE", name))
}

#[test]
fn a_job_goes_on_without_a_node_that_leaves_and_with_one_that_comes() {
    let (job, nodes) = (Job::new(), Nodes::elastic("1:3"));
    let first = node(&nodes, &job, "a");
    job.wait_for_note("pid.1.0.a");
    let second = node(&nodes, &job, "b");
    job.wait_for_pids(&["pid.2.0.a", "pid.2.1.b"]);
    let third = node(&nodes, &job, "c");
    let three = job.wait_for_pids(&["pid.3.0.a", "pid.3.1.b", "pid.3.2.c"]);

    // Its launcher dies.
    drop(second);
    let two = job.wait_for_pids(&["pid.2.1.c"]);
    wait_until_dead(&three);
    // Its launcher is stopped in good order.
    fs::remove_file(job.dir().join("pid.1.0.a")).unwrap();
    third.signal(Signal::SIGTERM);
    third.finish().expect_code(128 + 15);
    wait_until_dead(&two);
    let one = job.wait_for_pids(&["pid.1.0.a"]);

    // No change of the nodes counts as a restart.
    assert_eq!(job.note("restarts.1.0").as_deref(), Some("0"));
    first.signal(Signal::SIGTERM);
    let ended = first.finish();
    ended.expect_code(128 + 15).expect_stderr("launch: node 1 (");
    for said in [
        "joins the job\nlaunch: going on with 2 nodes: starting all ranks again\n",
        "going on with 3 nodes: starting all ranks again\n",
        "has gone: its launcher closed the connection\nlaunch: going on with 2 nodes",
        "): its launcher was stopped by SIGTERM\nlaunch: going on with 1 node:",
    ] {
        ended.expect_stderr(said);
    }
    wait_until_dead(&one);
}
