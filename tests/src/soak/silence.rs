//! A host that the others do not hear of any more, though its processes live.

use super::*;

pub(super) fn stopped_host(trial: &mut Trial) -> Result<Duration> {
    let stop: Act = |cluster, host| cluster.hosts.signal(host, Signal::SIGSTOP);
    silent(trial, stop, |cluster, host| cluster.hosts.signal(host, Signal::SIGCONT))
}

/// The host that is cut off needs nobody to tell it: it ends while the link is down.
pub(super) fn link_down(trial: &mut Trial) -> Result<Duration> {
    silent(trial, |cluster, host| cluster.hosts.set_link(host, false), |_, _| Ok(()))
}

type Act = fn(&Cluster, usize) -> Result<()>;

fn silent(trial: &mut Trial, silence: Act, wake: Act) -> Result<Duration> {
    let size = trial.size;
    let host = trial.rng.random_range(0..NODES);
    let moment = Duration::from_millis(trial.rng.random_range(0..1000));
    Cluster::with(NODES, &mut trial.log, |cluster| {
        let (ranks, limit) = (size.ranks_per_node.to_string(), size.heartbeat_timeout.to_string());
        cluster.start(&["-n", &ranks, "--heartbeat-timeout", &limit], &endless_training()?)?;
        wait_for_steps(&cluster.job, 0..NODES * size.ranks_per_node, 2)?;
        sleep(moment);

        let begin = Instant::now();
        silence(cluster, host)?;
        let others = cluster.others(host);
        let ends = cluster.ends(&others, PATIENCE)?;
        let culprit = format!("launch: node {host} ({}) ", cluster.hosts.name(host));
        ends.expect_failure()?.expect_same_line(&culprit)?;

        wake(cluster, host)?;
        cluster.ends(&[host], PATIENCE)?.expect_failure()?;
        cluster.job.expect_nobody_left(PATIENCE)?;
        Ok(ends.at - begin)
    })
}
