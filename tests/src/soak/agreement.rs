//! What the launchers agree on before any rank starts, and what they refuse.

use super::*;
use crate::programs::shell;
use std::io::Write;

const SAY: &str =
    "echo rank=$RANK/$WORLD_SIZE local=$LOCAL_RANK/$LOCAL_WORLD_SIZE node=$GROUP_RANK";

pub(super) fn uneven_nodes(trial: &mut Trial) -> Result<Duration> {
    Cluster::with(NODES, &mut trial.log, |cluster| {
        let begin = Instant::now();
        for host in 0..NODES {
            cluster.start_node(host, &["-n", &(host + 1).to_string()], &shell(SAY))?;
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
    let odd = trial.rng.random_range(0..NODES);
    let start = |cluster: &mut Cluster, host| {
        let nodes = if host == odd { "4" } else { "3" };
        cluster.start_node(host, &["--nnodes", nodes], &sleep("sleep".as_ref()))
    };
    let sentence = |_: &Cluster| {
        let (own, other) = if odd == 0 { (4, 3) } else { (3, 4) };
        let own = format!("different --nnodes: {own} on node 0 (host0), ");
        Ok(vec![own, format!("{other} on {}", refused_host(odd))])
    };
    refused(trial, start, sentence)
}

pub(super) fn same_node_rank(trial: &mut Trial) -> Result<Duration> {
    let start = |cluster: &mut Cluster, host: usize| {
        let rank = host.min(NODES - 2).to_string();
        cluster.start_node(host, &["--node-rank", &rank], &sleep("sleep".as_ref()))
    };
    let sentence = ["--node-rank 1 twice: ", "on host host1", "on host host2"].map(str::to_owned);
    refused(trial, start, |_| Ok(sentence.to_vec()))
}

pub(super) fn other_program(trial: &mut Trial) -> Result<Duration> {
    let odd = trial.rng.random_range(0..NODES);
    let program = |cluster: &Cluster, host| cluster.job.path(format!("program{host}"));
    let start = |cluster: &mut Cluster, host| {
        let copy = program(cluster, host);
        fs::copy("/bin/sleep", &copy)?;
        if host == odd {
            fs::File::options().append(true).open(&copy)?.write_all(b"newer")?;
        }
        cluster.start_node(host, &[], &sleep(&copy))
    };
    let sentence = |cluster: &Cluster| {
        let own = sha256(&program(cluster, 0))?;
        let other = sha256(&program(cluster, if odd == 0 { 1 } else { odd }))?;
        let own = format!(": {own} on node 0 (host0), ");
        Ok(vec!["different programs".to_owned(), own, format!("{other} on {}", refused_host(odd))])
    };
    refused(trial, start, sentence)
}

/// The host that does not agree with node 0. Where node 0 is the odd one, it may be any other.
fn refused_host(odd: usize) -> String {
    if odd == 0 { "host host".to_owned() } else { format!("host host{odd}") }
}

/// The beginning of a file's SHA-256.
fn sha256(file: &Path) -> Result<String> {
    let output = Command::new("sha256sum").arg(file).output().context("cannot run `sha256sum`")?;
    let digest = String::from_utf8_lossy(&output.stdout);
    Ok(digest.get(..12).context("sha256sum has printed nothing")?.to_owned())
}

/// Starts the nodes in any order, and expects that all end with code 1 and one common sentence, which
/// contains these words.
fn refused(
    trial: &mut Trial,
    start: impl Fn(&mut Cluster, usize) -> Result<()>,
    words: impl Fn(&Cluster) -> Result<Vec<String>>,
) -> Result<Duration> {
    let reaped = trial.size.reaped;
    let first = trial.rng.random_range(0..NODES);
    Cluster::with(NODES, &mut trial.log, |cluster| {
        for turn in 0..NODES {
            start(cluster, (first + turn) % NODES)?;
        }
        let begin = Instant::now();
        let ends = cluster.ends(&[0, 1, 2], PATIENCE)?;
        let refuses = |ended: &Ended| ended.status.code() == Some(1);
        ensure!(ends.launchers.iter().all(refuses), "the exit codes are not 1");
        let words = words(cluster)?;
        ends.expect_same_line("launch: ", &words.iter().map(String::as_str).collect::<Vec<_>>())?;
        cluster.job.expect_nobody_left(reaped)?;
        Ok(ends.at - begin)
    })
}

fn sleep(program: &Path) -> Command {
    let mut sleep = Command::new(program);
    sleep.arg("1000");
    sleep
}
