//! Nodes that leave an elastic job, and nodes that come.

use super::*;
use std::fs::File;

/// Appears when the training may end.
pub(super) const ENOUGH: &str = "enough";

/// Saved after every step.
pub(super) const CHECKPOINT: &str = "checkpoint.safetensors";

/// A node is killed, comes again, and one is killed again. Host 0 stays: the others meet there.
/// Returns the longest time until the training went on.
pub(super) fn nodes_come_and_go(trial: &mut Trial) -> Result<Duration> {
    let per_node = trial.size.ranks_per_node;
    let victims = [(); 2].map(|()| trial.rng.random_range(1..NODES));
    let moments = [(); 3].map(|()| Duration::from_millis(trial.rng.random_range(0..500)));
    let program = example("elastic", [])?;
    Cluster::with(NODES, &mut trial.log, |cluster| {
        (0..NODES).try_for_each(|host| start(cluster, host, per_node, &[], &program))?;
        let mut sizes = vec![NODES * per_node];
        wait_for_starts(cluster, &sizes)?;
        let mut longest = Duration::ZERO;
        for (change, moment) in moments.into_iter().enumerate() {
            sleep(moment);
            let begin = Instant::now();
            match change {
                0 => cluster.kill(victims[0])?,
                1 => start(cluster, victims[0], per_node, &[], &program)?,
                _ => cluster.kill(victims[1])?,
            }
            let nodes = if change == 1 { NODES } else { NODES - 1 };
            sizes.push(nodes * per_node);
            wait_for_starts(cluster, &sizes)?;
            longest = longest.max(begin.elapsed());
        }
        end(cluster)?;
        Ok(longest)
    })
}

/// Lets the training end, and expects that it has counted its samples.
pub(super) fn end(cluster: &mut Cluster) -> Result<()> {
    File::create(cluster.job.path(ENOUGH))?;
    expect_counts(&cluster.succeeds()?)
}

pub(super) fn expect_counts(ends: &[Ended]) -> Result<()> {
    let counted = ends.iter().any(|ended| ended.stdout.contains("every sample came "));
    ensure!(counted, "the samples were not counted: {ends:?}");
    Ok(())
}

pub(super) fn start(
    cluster: &mut Cluster,
    host: usize,
    per_node: usize,
    more: &[&str],
    program: &Command,
) -> Result<()> {
    let endpoint = format!("{}:29400", cluster.hosts.address(0));
    let per_node = per_node.to_string();
    let flags = ["--nnodes", "1:3", "--rdzv-backend", "c10d", "--rdzv-endpoint", &endpoint];
    let flags = [&flags[..], &["--rdzv-id", "soak", "-n", &per_node], more].concat();
    cluster.launch(host, &flags, program)
}

fn wait_for_starts(cluster: &mut Cluster, sizes: &[usize]) -> Result<()> {
    let path = cluster.job.path("starts");
    let expected: Vec<_> = sizes.iter().map(usize::to_string).collect();
    cluster.until(&format!("worlds of {expected:?} ranks have trained"), || {
        let starts = fs::read_to_string(&path).unwrap_or_default();
        let starts: Vec<_> = starts.lines().collect();
        let so_far = expected.get(..starts.len()).context("there were more starts")?;
        ensure!(starts == so_far, "worlds of {starts:?} ranks have trained, not {expected:?}");
        Ok((starts.len() == expected.len()).then_some(()))
    })
}
