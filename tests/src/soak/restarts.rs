//! Ranks that are killed and started again.

use super::*;
use crate::{Shared, safetensors::Tensors};

/// The jobs of a trial, some of which may end before their moment.
const ATTEMPTS: usize = 10;

const WEIGHTS: &str = "model.safetensors";

/// One rank is killed at a random moment. Returns how long the whole job took.
pub(super) fn restart(trial: &mut Trial) -> Result<Duration> {
    let per_node = trial.size.ranks_per_node;
    let (undisturbed_time, expected) = &*undisturbed(trial)?;
    for _ in 0..ATTEMPTS {
        let rank = trial.rng.random_range(0..NODES * per_node);
        let moment = undisturbed_time.mul_f64(trial.rng.random_range(0.0..1.0));
        let done = Cluster::with(NODES, &mut trial.log, |cluster| {
            let begin = Instant::now();
            start(cluster, per_node)?;
            sleep(moment);
            let Some(pid) = cluster.rank_unless_over(rank, "ddp-mnist")? else {
                cluster.succeeds()?;
                return Ok(None);
            };
            // It may end by itself at this moment.
            let _ = kill(pid, Signal::SIGKILL);
            let launchers = cluster.succeeds()?;
            let restarted = |ended: &Ended| ended.stderr.contains("restart 1 of 3");
            if !launchers.iter().any(restarted) {
                return Ok(None);
            }
            ensure!(launchers.iter().all(restarted), "one host did not restart its ranks");
            let weights = cluster.job.tensors(WEIGHTS)?;
            ensure!(weights == *expected, "killed after {moment:?}: other weights");
            Ok(Some(begin.elapsed()))
        })?;
        // Otherwise it was at its end before it was killed.
        if let Some(took) = done {
            return Ok(took);
        }
    }
    bail!("no rank was killed and started again in {ATTEMPTS} jobs");
}

/// How long the same training takes in peace, and its weights. It is done only once for all trials.
fn undisturbed(trial: &mut Trial) -> Result<Arc<(Duration, Tensors)>> {
    static DONE: Shared<(Duration, Tensors)> = Shared::new();
    let per_node = trial.size.ranks_per_node;
    let train = |cluster: &mut Cluster| -> Result<_> {
        let begin = Instant::now();
        start(cluster, per_node)?;
        cluster.succeeds()?;
        Ok((begin.elapsed(), cluster.job.tensors(WEIGHTS)?))
    };
    DONE.get(per_node, || Cluster::with(NODES, &mut trial.log, train))
}

fn start(cluster: &mut Cluster, per_node: usize) -> Result<()> {
    let training = ["--epochs=2", "--batch-size=32", "--momentum=0.9", "--save", WEIGHTS];
    let checkpoint = ["--checkpoint=checkpoint.safetensors", "--save-every=5", "--resume=auto"];
    let program = ddp_mnist(training.into_iter().chain(checkpoint))?;
    cluster.start(&["-n", &per_node.to_string(), "--max-restarts", "3"], &program)
}
