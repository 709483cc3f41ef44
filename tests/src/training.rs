//! What a training leaves behind, for comparison to the last bit.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::job::Job;
use crate::safetensors::{self, Tensor};

/// Where a training that a test compares writes its metrics and its weights, both in the job's
/// directory.
pub const OUTPUTS: [&str; 4] = ["--metrics", "metrics", "--save", "model.safetensors"];

/// Every loss of every rank, and the weights at the end.
#[derive(Debug)]
pub struct Training {
    /// By rank, in the order of the steps; an epoch follows upon the other.
    pub losses: Vec<Vec<f32>>,
    /// By the names of the parameters.
    pub weights: BTreeMap<String, Tensor>,
}

impl Training {
    /// Reads what the job's ranks have written, told so by [`OUTPUTS`].
    pub fn of(job: &Job, world_size: usize) -> Result<Self> {
        let losses =
            (0..world_size).map(|rank| losses(job.directory(), rank)).collect::<Result<_>>()?;
        Ok(Self { losses, weights: safetensors::read(&job.directory().join("model.safetensors"))? })
    }

    /// Fails at the first bit that is not the same, saying where.
    pub fn expect_equal(&self, other: &Self) -> Result<()> {
        ensure!(self.losses.len() == other.losses.len(), "the worlds differ in size");
        for (rank, (ours, theirs)) in self.losses.iter().zip(&other.losses).enumerate() {
            let steps = (ours.len(), theirs.len());
            ensure!(steps.0 == steps.1 && steps.0 > 0, "rank {rank} took {steps:?} steps");
            for (step, (a, b)) in ours.iter().zip(theirs).enumerate() {
                ensure!(
                    a.to_bits() == b.to_bits(),
                    "rank {rank}, step {step} of {}: the losses are {a} and {b}",
                    ours.len()
                );
            }
        }
        let names = |training: &Self| training.weights.keys().cloned().collect::<Vec<_>>();
        ensure!(names(self) == names(other), "{:?} against {:?}", names(self), names(other));
        for (name, tensor) in &self.weights {
            ensure!(tensor == &other.weights[name], "the final weights of {name} differ");
        }
        Ok(())
    }
}

/// The losses of a rank's steps, in order, as far as it has written them.
pub fn losses(directory: &Path, rank: usize) -> Result<Vec<f32>> {
    let path = directory.join(format!("metrics/rank{rank}.jsonl"));
    let text =
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let mut losses = Vec::new();
    for line in text.lines() {
        let event: Value = serde_json::from_str(line)
            .with_context(|| format!("{}: a line is no JSON: {line}", path.display()))?;
        if event["event"] == "step" {
            let loss = event["loss"].as_f64().with_context(|| format!("no loss in {line}"))?;
            // The shortest decimal of an f32 gives that f32 back.
            losses.push(loss as f32);
        }
    }
    Ok(losses)
}

/// Whether a rank has taken so many steps by now: its file may not be there yet, nor its last line
/// complete.
pub fn has_taken_steps(directory: &Path, rank: usize, steps: usize) -> bool {
    let path = directory.join(format!("metrics/rank{rank}.jsonl"));
    let text = fs::read_to_string(path).unwrap_or_default();
    text.matches(r#""loss""#).count() >= steps
}
