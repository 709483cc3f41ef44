//! A rank, a launcher or a host is killed while all ranks train, or a host falls silent: the others end, and name it.

use super::*;

#[derive(Clone, Copy)]
pub(super) enum Fault {
    KilledRank,
    KilledLauncher,
    KilledHost,
    /// The others hear nothing of the host any more, though its processes live.
    StoppedHost,
    /// The same, but nobody needs to tell the host: it ends while the link is down.
    LinkDown,
}

/// Returns how long the others take to end.
pub(super) fn provoke(trial: &mut Trial, fault: Fault) -> Result<Duration> {
    let size = trial.size;
    let per_node = size.ranks_per_node;
    let rank = trial.rng.random_range(0..NODES * per_node);
    let host = rank / per_node;
    let moment = Duration::from_millis(trial.rng.random_range(0..1000));
    let is_silence = matches!(fault, Fault::StoppedHost | Fault::LinkDown);
    let (ranks, limit) = (per_node.to_string(), size.heartbeat_timeout.to_string());
    let flags = ["-n", &ranks, "--heartbeat-timeout", &limit];
    let flags = if is_silence { &flags[..] } else { &flags[..2] };
    Cluster::with(NODES, &mut trial.log, |cluster| {
        cluster.start(flags, &endless_training()?)?;
        wait_for_steps(&cluster.job, 0..NODES * per_node, 2)?;
        sleep(moment);

        let pid = cluster.job.rank(rank, "ddp-mnist")?;
        let node = format!("launch: node {host} ({})", cluster.hosts.name(host));
        let (survivors, culprit): (Vec<_>, _) = match fault {
            Fault::KilledRank => ((0..NODES).collect(), format!("{node}: rank {rank} (pid ")),
            _ => ((0..NODES).filter(|other| *other != host).collect(), format!("{node} ")),
        };
        let begin = Instant::now();
        match fault {
            Fault::KilledRank => kill(pid, Signal::SIGKILL)?,
            Fault::KilledLauncher => kill(cluster.launcher(host)?.pid(), Signal::SIGKILL)?,
            Fault::KilledHost => cluster.hosts.signal(host, Signal::SIGKILL)?,
            Fault::StoppedHost => cluster.hosts.signal(host, Signal::SIGSTOP)?,
            Fault::LinkDown => cluster.hosts.set_link(host, false)?,
        }
        let ends = cluster.ends(&survivors, PATIENCE)?;
        let took = begin.elapsed();
        expect_failure(&ends)?;
        expect_same_line(&ends, &culprit)?;

        if let Fault::StoppedHost = fault {
            cluster.hosts.signal(host, Signal::SIGCONT)?;
        }
        if is_silence {
            expect_failure(&cluster.ends(&[host], PATIENCE)?)?;
        }
        cluster.job.expect_nobody_left(if is_silence { PATIENCE } else { size.reaped })?;
        Ok(took)
    })
}

fn expect_failure(ends: &[Ended]) -> Result<()> {
    ensure!(ends.iter().all(|ended| !ended.status.success()), "a launcher has ended with success");
    Ok(())
}

/// Fails unless all have printed one and the same line that begins so.
fn expect_same_line(ends: &[Ended], beginning: &str) -> Result<()> {
    let (first, others) = ends.split_first().context("no launcher has ended")?;
    let everywhere =
        |line: &str| others.iter().all(|other| other.stderr.lines().any(|theirs| theirs == line));
    let mut lines = first.stderr.lines().filter(|line| line.starts_with(beginning));
    ensure!(lines.any(everywhere), "no line `{beginning}…` is the same on every host");
    Ok(())
}
