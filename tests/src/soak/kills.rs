//! `kill -9`, while all ranks train.

use std::time::{Duration, Instant};

use anyhow::Result;
use nix::sys::signal::{Signal, kill};
use rand::Rng;

use super::{NODES, PATIENCE, Trial, endless_training};
use crate::cluster::Cluster;
use crate::training::wait_for_steps;

/// How long the last process may take to disappear after the launchers.
const REAPED: Duration = Duration::from_secs(1);

/// Who is killed.
enum Victim {
    Rank,
    Launcher,
    Host,
}

pub(super) fn rank(trial: &mut Trial) -> Result<Duration> {
    killed(trial, &Victim::Rank)
}

pub(super) fn launcher(trial: &mut Trial) -> Result<Duration> {
    killed(trial, &Victim::Launcher)
}

pub(super) fn host(trial: &mut Trial) -> Result<Duration> {
    killed(trial, &Victim::Host)
}

fn killed(trial: &mut Trial, victim: &Victim) -> Result<Duration> {
    let per_node = trial.size.ranks_per_node;
    let rank = trial.dice.random_range(0..NODES * per_node);
    let host = rank / per_node;
    let moment = Duration::from_millis(trial.dice.random_range(0..1000));
    Cluster::with(NODES, |cluster| {
        cluster.start(&["-n", &per_node.to_string()], &endless_training()?)?;
        wait_for_steps(&cluster.job, 0..NODES * per_node, 2)?;
        cluster.let_pass(moment);

        let pid = cluster.job.rank(rank, "ddp-mnist")?;
        let all: Vec<_> = (0..NODES).collect();
        let begin = Instant::now();
        let survivors = match victim {
            Victim::Rank => {
                kill(pid, Signal::SIGKILL)?;
                all
            }
            Victim::Launcher => {
                kill(cluster.launcher(host)?.pid(), Signal::SIGKILL)?;
                cluster.others(host)
            }
            Victim::Host => {
                cluster.hosts.signal(host, Signal::SIGKILL)?;
                cluster.others(host)
            }
        };
        let ends = cluster.ends(&survivors, PATIENCE)?;
        let (name, rank) = (cluster.hosts.name(host), format!("rank {rank}"));
        let culprit: &[&str] = match victim {
            Victim::Rank => &[&name, &rank],
            Victim::Launcher | Victim::Host => &[&name],
        };
        ends.expect_failure()?.expect_same_line(culprit)?;
        cluster.job.expect_nobody_left(REAPED)?;
        Ok(ends.at - begin)
    })
}
