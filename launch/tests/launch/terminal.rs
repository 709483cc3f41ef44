//! `launch` at a terminal, which Python's `pty` plays.

use crate::job::{Job, run, wait_until_dead};
use std::process::Command;

/// Runs its arguments at a terminal; types Ctrl-C there once the files that CTRL_C_AFTER names exist.
const TERMINAL: &str = r#"
import os, pty, select, sys
pid, terminal = pty.fork()
if pid == 0:
    os.execvp(sys.argv[1], sys.argv[1:])
awaited = os.environ.get("CTRL_C_AFTER", "").split()
while True:
    if awaited and all(os.path.exists(os.path.join(os.environ["DIR"], name)) for name in awaited):
        os.write(terminal, b"\x03")
        awaited = []
    if not select.select([terminal], [], [], 0.01)[0]:
        continue
    try:
        text = os.read(terminal, 4096)
    except OSError:
        break
    if not text:
        break
    os.write(1, text)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"#;

fn at_terminal(job: &Job, launch: &Command) -> Command {
    let mut command = job.clean("python3");
    command.args(["-c", TERMINAL]).arg(launch.get_program()).args(launch.get_args());
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
