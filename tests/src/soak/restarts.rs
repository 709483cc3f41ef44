//! Ranks that are killed and started again.

use std::collections::BTreeMap;
use std::process::Command;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use nix::sys::signal::{Signal, kill};
use rand::Rng;

use super::{NODES, Trial};
use crate::cluster::Cluster;
use crate::job::Ended;
use crate::programs::{example, workspace};
use crate::safetensors::{self, Tensor};

/// Resumes from the snapshot if there is one.
const RESUME: &str = r#"test -f snapshot && set -- "$@" --resume snapshot; exec "$@""#;

/// The weights at the end.
const WEIGHTS: &str = "model.safetensors";

/// A training that nobody disturbed.
#[derive(Clone)]
struct Undisturbed {
    took: Duration,
    weights: BTreeMap<String, Tensor>,
}

/// One rank is killed at a random moment. Returns how long the whole job took.
pub(super) fn restart(trial: &mut Trial) -> Result<Duration> {
    let per_node = trial.size.ranks_per_node;
    let undisturbed = undisturbed(per_node)?;
    loop {
        let rank = trial.dice.random_range(0..NODES * per_node);
        let moment = undisturbed.took.mul_f64(trial.dice.random_range(0.0..1.0));
        let done = Cluster::with(NODES, |cluster| {
            let begin = Instant::now();
            start(cluster, per_node)?;
            cluster.let_pass(moment);
            if cluster.launcher(0)?.has_ended()? {
                return Ok(None);
            }
            // It may end by itself at this moment.
            let _ = kill(cluster.job.rank(rank, "mingpt")?, Signal::SIGKILL);
            let launchers = cluster.succeeds()?;
            let restarted = |ended: &Ended| ended.stderr.contains("restart 1 of 3");
            if !launchers.iter().any(restarted) {
                return Ok(None);
            }
            ensure!(launchers.iter().all(restarted), "one host did not restart its ranks");
            let weights = safetensors::read(&cluster.job.directory().join(WEIGHTS))?;
            ensure!(weights == undisturbed.weights, "killed after {moment:?}: other weights");
            Ok(Some(begin.elapsed()))
        })?;
        // Otherwise it was at its end before it was killed.
        if let Some(took) = done {
            return Ok(took);
        }
    }
}

/// The same training in peace. It is done only once for all trials.
fn undisturbed(per_node: usize) -> Result<Undisturbed> {
    static DONE: Mutex<Option<Undisturbed>> = Mutex::new(None);
    let mut done = DONE.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(done) = &*done {
        return Ok(done.clone());
    }
    let new = Cluster::with(NODES, |cluster| {
        let begin = Instant::now();
        start(cluster, per_node)?;
        cluster.succeeds()?;
        let weights = safetensors::read(&cluster.job.directory().join(WEIGHTS))?;
        Ok(Undisturbed { took: begin.elapsed(), weights })
    })?;
    Ok(done.insert(new).clone())
}

fn start(cluster: &mut Cluster, per_node: usize) -> Result<()> {
    let text = workspace().join("LICENSE-APACHE");
    let text = text.to_string_lossy();
    let flags =
        ["--epochs", "4", "--batch-size", "64", "--snapshot", "snapshot", "--save", WEIGHTS];
    let training = example("mingpt", flags.into_iter().chain(["--text", &text]))?;
    let mut program = Command::new("sh");
    program.args(["-c", RESUME, "sh"]).arg(training.get_program()).args(training.get_args());
    cluster.start(&["-n", &per_node.to_string(), "--max-restarts", "3"], &program)
}
