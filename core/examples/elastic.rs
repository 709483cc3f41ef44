//! Counts how often a job trains on each sample while its nodes come and go: the model has a weight
//! for every sample, and each step adds 1 to those of its batch.
//!
//! ```text
//! cargo launch --nnodes 1:3 --rdzv-backend c10d --rdzv-endpoint localhost:29400 -n 2 -- cargo run -rq -p tch-parallel --example elastic
//! ```
//!
//! It saves the training in the current folder after every step, and goes on from there. `touch enough` ends it.

use anyhow::{Result, ensure};
use report::{exit, say};
use serde::{Deserialize, Serialize};
use std::{fs::File, io::Write, path::Path};
use tch::{Kind, Tensor, nn::VarStore};
use tch_parallel::checkpoint::Training;
use tch_parallel::data::{DataLoader, DistributedSampler, TensorDataset};
use tch_parallel::distributed::{DistributedDataParallel, ProcessGroup};
use tch_parallel::optim::{Sgd, SgdOptions};

/// A multiple of every world size up to 4, and of 6, as are a step's samples, so no rank lacks a sample and has to repeat one.
const SAMPLES: i64 = 1440;
const BATCH_SIZE: usize = 12;

const CHECKPOINT: &str = "checkpoint.safetensors";

#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
struct Progress {
    epoch: u64,
    /// What all ranks together have seen in this epoch.
    samples: usize,
}

fn main() {
    exit(train)
}

fn train() -> Result<()> {
    let group = ProcessGroup::from_env()?;
    let world_size = group.world_size();
    let samples = TensorDataset::new(Tensor::arange(SAMPLES, (Kind::Int64, group.device())))?;
    let loader = DataLoader::new(samples, DistributedSampler::new(&group, 0), BATCH_SIZE)?;

    let mut vs = VarStore::new(group.device());
    let counts = vs.root().zeros("counts", &[SAMPLES]);
    let model = DistributedDataParallel::new(&counts, &vs, &group)?;
    let mut optimizer = Sgd::new(&vs, SgdOptions { lr: 1.0, ..Default::default() })?;
    let (vs, optimizer) = (&mut vs, &mut optimizer);
    let mut training =
        Training { architecture: "elastic", vs, optimizer, scheduler: None, scaler: None };
    let mut progress = Progress::default();
    if Path::new(CHECKPOINT).exists() {
        progress = training.load(CHECKPOINT, &group)?.progress;
    }

    let mut first_step = true;
    while !is_enough(progress, &group)? {
        for batch in loader.epoch_after(progress.epoch, progress.samples)? {
            let batch = batch?;
            let sum = model.forward(|counts| counts.index_select(0, &batch).sum(Kind::Float))?;
            training.optimizer.zero_grad()?;
            // The average of the gradients of all ranks is then -1 for each sample of the step.
            model.backward(&(sum * -(world_size as f64)))?;
            training.optimizer.step()?;
            progress.samples += batch.size()[0] as usize * world_size;
            training.save(CHECKPOINT, &progress, &group)?;
            if std::mem::take(&mut first_step) && group.rank() == 0 {
                let mut starts = File::options().append(true).create(true).open("starts")?;
                writeln!(starts, "{world_size}")?;
            }
        }
        progress = Progress { epoch: progress.epoch + 1, samples: 0 };
    }

    let (least, most) = (counts.min().double_value(&[]), counts.max().double_value(&[]));
    let epochs = progress.epoch;
    let found = format!("in {epochs} epochs, samples came {least} to {most} times");
    ensure!(least == epochs as f64 && most == least, found);
    say(&group, format!("every sample came {least} times in {epochs} epochs"));
    Ok(())
}

/// Whether rank 0 sees the file at the beginning of an epoch.
fn is_enough(progress: Progress, group: &ProcessGroup) -> Result<bool> {
    let mut enough = Tensor::from(i64::from(progress.samples == 0 && Path::new("enough").exists()));
    group.broadcast(&mut enough, 0)?;
    Ok(enough.int64_value(&[]) == 1)
}
