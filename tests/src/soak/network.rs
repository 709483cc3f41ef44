//! A bad network, through which a job trains to its end.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use rand::Rng;

use super::{NODES, Trial};
use crate::cluster::Cluster;
use crate::digits;
use crate::hosts::Weather;
use crate::programs::ddp_mnist;
use crate::training::{has_taken_steps, losses, wait_for_steps};

/// The steps of a training whose every step takes long.
const FEW_STEPS: usize = 3;

/// The steps of a training that is interrupted.
const STEPS: usize = 100;

pub(super) fn delay(trial: &mut Trial) -> Result<Duration> {
    let delay = Duration::from_millis(200);
    let took = bad_weather(trial, Weather { delay, ..Default::default() })?;
    ensure!(took > 2 * delay, "it took {took:?}, which no delayed training can");
    Ok(took)
}

pub(super) fn loss(trial: &mut Trial) -> Result<Duration> {
    bad_weather(trial, Weather { loss: 0.2, ..Default::default() })
}

fn bad_weather(trial: &mut Trial, weather: Weather) -> Result<Duration> {
    let per_node = trial.size.ranks_per_node;
    Cluster::with(NODES, |cluster| {
        for host in 0..NODES {
            cluster.hosts.set_weather(host, weather);
        }
        let begin = Instant::now();
        start(cluster, per_node, FEW_STEPS)?;
        cluster.succeeds()?;
        let took = begin.elapsed();
        expect_steps(cluster, per_node, FEW_STEPS)?;
        let traffic = cluster.hosts.traffic();
        ensure!(traffic.lost + traffic.delayed > 0, "the network was not bad: {traffic:?}");
        Ok(took)
    })
}

pub(super) fn partition(trial: &mut Trial) -> Result<Duration> {
    let size = trial.size;
    let host = trial.dice.random_range(0..NODES);
    Cluster::with(NODES, |cluster| {
        start(cluster, size.ranks_per_node, STEPS)?;
        wait_for_steps(&cluster.job, 0..NODES * size.ranks_per_node, 2)?;
        cluster.hosts.cut_off(host, true);
        cluster.let_pass(size.partition);
        let over = has_taken_steps(cluster.job.directory(), 0, STEPS);
        ensure!(!over, "the training did not wait for the host that was cut off");
        cluster.hosts.cut_off(host, false);

        let begin = Instant::now();
        cluster.succeeds()?;
        expect_steps(cluster, size.ranks_per_node, STEPS)?;
        Ok(begin.elapsed())
    })
}

/// Starts a training of so many steps.
fn start(cluster: &mut Cluster, per_node: usize, steps: usize) -> Result<()> {
    let data = cluster.job.directory().join("data");
    std::fs::create_dir(&data)?;
    digits::write(&data, (steps * NODES * per_node) as u32)?;
    let flags = ["--epochs=1", "--batch-size=1", "--no-save", "--metrics=metrics"];
    let mut program = ddp_mnist(flags)?;
    program.arg("--data-dir").arg(data);
    cluster.start(&["-n", &per_node.to_string()], &program)
}

fn expect_steps(cluster: &Cluster, per_node: usize, steps: usize) -> Result<()> {
    for rank in 0..NODES * per_node {
        let taken = losses(cluster.job.directory(), rank)?.len();
        ensure!(taken == steps, "rank {rank} took {taken} steps, not {steps}");
    }
    Ok(())
}
