//! `kill -9`, while all ranks train.

use super::*;

#[derive(Clone, Copy)]
pub(super) enum Victim {
    Rank,
    Launcher,
    Host,
}

pub(super) fn killed(trial: &mut Trial, victim: Victim) -> Result<Duration> {
    let size = trial.size;
    let per_node = size.ranks_per_node;
    let rank = trial.rng.random_range(0..NODES * per_node);
    let host = rank / per_node;
    let moment = Duration::from_millis(trial.rng.random_range(0..1000));
    Cluster::with(NODES, &mut trial.log, |cluster| {
        cluster.start(&["-n", &per_node.to_string()], &endless_training()?)?;
        wait_for_steps(&cluster.job, 0..NODES * per_node, 2)?;
        sleep(moment);

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
        let node = format!("launch: node {host} ({})", cluster.hosts.name(host));
        let culprit = match victim {
            Victim::Rank => format!("{node}: rank {rank} (pid "),
            Victim::Launcher | Victim::Host => format!("{node} "),
        };
        ends.expect_failure()?.expect_same_line(&culprit, &[])?;
        cluster.job.expect_nobody_left(size.reaped)?;
        Ok(ends.at - begin)
    })
}
