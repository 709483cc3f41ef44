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
        let node = format!("launch: node {host} ({})", cluster.hosts.name(host));
        let (survivors, culprit) = match victim {
            Victim::Rank => ((0..NODES).collect(), format!("{node}: rank {rank} (pid ")),
            Victim::Launcher | Victim::Host => (cluster.others(host), format!("{node} ")),
        };
        let begin = Instant::now();
        match victim {
            Victim::Rank => kill(pid, Signal::SIGKILL)?,
            Victim::Launcher => kill(cluster.launcher(host)?.pid(), Signal::SIGKILL)?,
            Victim::Host => cluster.hosts.signal(host, Signal::SIGKILL)?,
        }
        let ends = cluster.ends(&survivors, PATIENCE)?;
        ends.expect_failure()?.expect_same_line(&culprit)?;
        cluster.job.expect_nobody_left(size.reaped)?;
        Ok(ends.at - begin)
    })
}
