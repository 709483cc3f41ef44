//! What the launchers agree on before any rank starts, and what they refuse.

use std::fs;
use std::io::Write;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use rand::Rng;

use super::{NODES, PATIENCE, Trial};
use crate::cluster::Cluster;
use crate::job::Ended;

/// What each rank prints.
const SAY: &str =
    "echo rank=$RANK/$WORLD_SIZE local=$LOCAL_RANK/$LOCAL_WORLD_SIZE node=$GROUP_RANK";

pub(super) fn uneven_nodes(_: &mut Trial) -> Result<Duration> {
    Cluster::with(NODES, |cluster| {
        let begin = Instant::now();
        let mut program = Command::new("sh");
        program.args(["-c", SAY]);
        for host in 0..NODES {
            cluster.start_node(host, &["-n", &(host + 1).to_string()], &program)?;
        }
        let mut printed: Vec<String> = Vec::new();
        for ended in cluster.succeeds()? {
            let mut lines: Vec<_> = ended.stdout.lines().map(str::to_owned).collect();
            lines.sort();
            printed.extend(lines);
        }
        let expected = [
            "rank=0/6 local=0/1 node=0",
            "rank=1/6 local=0/2 node=1",
            "rank=2/6 local=1/2 node=1",
            "rank=3/6 local=0/3 node=2",
            "rank=4/6 local=1/3 node=2",
            "rank=5/6 local=2/3 node=2",
        ];
        ensure!(printed == expected, "the ranks are {printed:?}");
        Ok(begin.elapsed())
    })
}

pub(super) fn different_nnodes(trial: &mut Trial) -> Result<Duration> {
    let odd = trial.dice.random_range(0..NODES);
    refused(trial, |cluster, host| {
        let nodes = if host == odd { "4" } else { "3" };
        cluster.start_node(host, &["--nnodes", nodes], &sleep())
    })
}

pub(super) fn same_node_rank(trial: &mut Trial) -> Result<Duration> {
    refused(trial, |cluster, host| {
        let rank = host.min(NODES - 2).to_string();
        cluster.start_node(host, &["--node-rank", &rank], &sleep())
    })
}

pub(super) fn other_program(trial: &mut Trial) -> Result<Duration> {
    let odd = trial.dice.random_range(0..NODES);
    refused(trial, |cluster, host| {
        let copy = cluster.job.directory().join(format!("program{host}"));
        fs::copy("/bin/sleep", &copy)?;
        if host == odd {
            fs::File::options().append(true).open(&copy)?.write_all(b"newer")?;
        }
        let mut program = Command::new(copy);
        program.arg("1000");
        cluster.start_node(host, &[], &program)
    })
}

/// Starts the nodes in any order, and expects that all end with code 1 and one common sentence.
fn refused(
    trial: &mut Trial,
    start: impl Fn(&mut Cluster, usize) -> Result<()>,
) -> Result<Duration> {
    let first = trial.dice.random_range(0..NODES);
    Cluster::with(NODES, |cluster| {
        for turn in 0..NODES {
            start(cluster, (first + turn) % NODES)?;
        }
        let begin = Instant::now();
        let ends = cluster.ends(&[0, 1, 2], PATIENCE)?;
        let refuses = |ended: &Ended| ended.status.code() == Some(1);
        ensure!(ends.launchers.iter().all(refuses), "the exit codes are not 1");
        ends.expect_same_line(&["launch: ", "host"])?;
        cluster.job.expect_nobody_left(Duration::from_secs(1))?;
        Ok(ends.at - begin)
    })
}

fn sleep() -> Command {
    let mut sleep = Command::new("sleep");
    sleep.arg("1000");
    sleep
}
