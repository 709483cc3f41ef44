//! Chapter "Set-up and launching".

use super::*;
use std::net::TcpListener;

#[test]
fn launch_tells_each_rank_who_it_is() -> Result<()> {
    let script = "echo RANK=$RANK LOCAL_RANK=$LOCAL_RANK WORLD_SIZE=$WORLD_SIZE \
                  MASTER_ADDR=$MASTER_ADDR OMP_NUM_THREADS=$OMP_NUM_THREADS";
    let shown = format!("$ cargo launch -n 2 --tee 1 -- sh -c '{script}'\n");
    let launched = launch_with(&["-n", "2", "--tee", "1"], &shell(script))?;
    expect_listing("environment.txt", &(shown + &by_rank(&printed(launched)?)), EXACT)
}

/// Shown without the launcher's list of all ranks that failed, and whichever rank speaks first. Rank 0
/// may not speak at all: on a slow machine, the launcher ends it before it has found the reason.
#[test]
fn a_rank_that_fails_is_named_with_its_reason() -> Result<()> {
    let mut command = launch(2, &example("failing_rank", ["error"])?)?;
    let reason = ") exited with code 1: no sample 6 in the data set";
    let ended = Job::new()?.run(command.env_remove("RUST_BACKTRACE"))?.expect_code(1)?;
    ended.expect_line(&["launch: rank 1 (pid ", reason])?;
    if !ended.stderr.contains("Error: rank 0: ") {
        return Ok(());
    }
    let is_shown = |line: &&str| !line.starts_with("launch: after that");
    let lines: Vec<_> = ended.stderr.lines().filter(is_shown).collect();
    expect_listing("failing_rank.txt", &(sorted(&lines.join("\n")) + CUT), EXACT)
}

/// The book always shows the same port, whichever the system has chosen.
#[test]
fn a_start_by_hand_says_what_it_lacks() -> Result<()> {
    const RANK_0: &str = "RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29512";
    let start = |remark: &str, shown: &str, port: u16| -> Result<String> {
        let (port, flags) = (port.to_string(), "--timeout 2");
        let variables = shown.replace("29512", &port);
        let program = command(&format!("{variables} cargo xtask run ddp-mnist -- {flags}"))?;
        let error = Job::new()?.run(program)?.expect_code(1)?.stderr.replace(&port, "29512");
        Ok(format!("{remark}$ {shown} target/release/ddp-mnist {flags}\n{error}"))
    };
    let other_program = TcpListener::bind("127.0.0.1:0")?;
    let taken = other_program.local_addr()?.port();
    let listing = [
        start("", "WORLD_SIZE=2", free_port()?)?,
        start("", RANK_0, free_port()?)?,
        start("# while another program listens on port 29512:\n", RANK_0, taken)?,
    ];
    expect_listing("start_by_hand.txt", &listing.concat(), EXACT)
}
