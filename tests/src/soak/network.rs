//! A bad network, through which a job trains on.

use super::*;
use crate::{digits, hosts::Conditions, safetensors};

/// The steps of a training whose every step takes long.
const FEW_STEPS: usize = 3;

pub(super) fn delay(trial: &mut Trial) -> Result<Duration> {
    let delay = trial.size.delay;
    let took = bad_network(trial, Conditions { delay, ..Default::default() })?;
    ensure!(took > 2 * delay, "it took {took:?}, which no delayed training can");
    Ok(took)
}

pub(super) fn loss(trial: &mut Trial) -> Result<Duration> {
    let loss = trial.size.loss;
    bad_network(trial, Conditions { loss, ..Default::default() })
}

fn bad_network(trial: &mut Trial, conditions: Conditions) -> Result<Duration> {
    let per_node = trial.size.ranks_per_node;
    Cluster::with(NODES, &mut trial.log, |cluster| {
        for host in 0..NODES {
            let seed = trial.rng.random();
            cluster.hosts.switch.set_conditions(host, Conditions { seed, ..conditions });
        }
        let begin = Instant::now();
        start(cluster, per_node)?;
        // Whether or not they make progress: TCP doubles its wait with each segment that is lost again, up to minutes.
        let deadline = Instant::now() + 10 * PATIENCE;
        for node in 0..NODES {
            cluster.launcher(node)?.wait_until(deadline)?.expect_success()?;
        }
        let took = begin.elapsed();
        for rank in 0..NODES * per_node {
            let taken = losses(cluster.job.directory(), rank)?.len();
            ensure!(taken == FEW_STEPS, "rank {rank} took {taken} steps, not {FEW_STEPS}");
        }
        let traffic = cluster.hosts.switch.traffic();
        ensure!(traffic.lost + traffic.delayed > 0, "the network was not bad: {traffic:?}");
        Ok(took)
    })
}

/// Returns the time from the moment when the host is connected again until the next step.
pub(super) fn partition(trial: &mut Trial) -> Result<Duration> {
    let size = trial.size;
    let host = trial.rng.random_range(0..NODES);
    Cluster::with(NODES, &mut trial.log, |cluster| {
        cluster.start(&["-n", &size.ranks_per_node.to_string()], &example("elastic", [])?)?;
        let checkpoint = cluster.job.path(elastic::CHECKPOINT);
        cluster.until("the training has begun", || Ok(checkpoint.exists().then_some(())))?;

        cluster.hosts.switch.cut_off(host, true);
        let mut before = safetensors::read(&checkpoint)?;
        sleep(size.partition);
        let mut after = safetensors::read(&checkpoint)?;
        if before != after {
            // The step of that moment may have been completed.
            before = after;
            sleep(size.partition);
            after = safetensors::read(&checkpoint)?;
        }
        ensure!(before == after, "the training did not wait for the host that was cut off");
        cluster.hosts.switch.cut_off(host, false);

        let begin = Instant::now();
        cluster.until("the training goes on", || {
            Ok((safetensors::read(&checkpoint)? != after).then_some(()))
        })?;
        let took = begin.elapsed();
        elastic::end(cluster)?;
        Ok(took)
    })
}

fn start(cluster: &mut Cluster, per_node: usize) -> Result<()> {
    let data = cluster.job.path("data");
    fs::create_dir(&data)?;
    digits::write(&data, (FEW_STEPS * NODES * per_node) as u32)?;
    let flags = ["--epochs=1", "--batch-size=1", "--no-save", "--metrics=metrics"];
    let mut program = ddp_mnist(flags)?;
    program.arg("--data-dir").arg(data);
    // TCP waits longer and longer for a lost segment, heartbeats with it.
    cluster.start(&["-n", &per_node.to_string(), "--heartbeat-timeout", "60"], &program)
}
