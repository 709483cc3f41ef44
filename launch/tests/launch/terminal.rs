//! `launch` at a terminal, which Python's `pty` plays.

use crate::prelude::*;

fn at_terminal(job: &Job, launch: &Command) -> Command {
    let mut command = job.clean("python3");
    let terminal = include_str!("terminal.py");
    command.args(["-c", terminal]).arg(launch.get_program()).args(launch.get_args());
    command
}

#[test]
fn rank_0_writes_to_the_terminal_itself() {
    let job = Job::new();
    let script = r#"if [ -t 2 ]; then echo "rank $RANK has it" >&2; fi; exit $((RANK == 0))"#;
    let ended = run(at_terminal(&job, &job.launch_sh("-n 2", script)));
    let screen = &ended.expect_code(1).stdout;
    assert!(screen.contains("rank 0 has it"), "{screen}");
    assert!(!screen.contains("rank 1 has it"), "{screen}");
    assert!(screen.contains("exited with code 1; its messages are above"), "{screen}");
}

#[test]
fn ctrl_c_ends_the_job_and_leaves_nobody() {
    let job = Job::new();
    let script = "sleep 60 & note $! child.$RANK; note $$ pid.$RANK; stay";
    let mut command = at_terminal(&job, &job.launch_sh("-n 2", script));
    let ended = run(command.env("CTRL_C_AFTER", "pid.0 pid.1"));
    let screen = &ended.expect_code(130).stdout;
    assert!(screen.contains("launch: forwarding SIGINT to the ranks"), "{screen}");
    assert!(!screen.contains("did not end within"), "{screen}");
    wait_until_dead(&job.wait_for_pids(&["pid.0", "pid.1", "child.0", "child.1"]));
}
