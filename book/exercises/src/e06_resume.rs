//! Resume after a kill (chapter: ddp-mnist.md)
//!
//! `train` saves the whole training after each step: every rank calls `save`, and rank 0 writes the file. After a kill,
//! the job is started again with the same command. Return the step to continue with, which is 0 if there is no file
//! yet. The momentum must be restored too.

use crate::prelude::*;
use std::path::Path;

pub fn resume(group: &ProcessGroup, training: &mut Training<'_>, path: &Path) -> Result<u64> {
    todo!("load the training and its step, if there is a file")
}

/// Trains up to this step; returns the weight and the number of steps that this took.
fn train(
    group: &ProcessGroup,
    resume: impl Fn(&ProcessGroup, &mut Training<'_>, &Path) -> Result<u64>,
    path: &Path,
    until: u64,
) -> Result<(Tensor, u64)> {
    let (mut vs, weight) = one_weight(&[1.0, -2.0]);
    let model = DistributedDataParallel::new(weight.shallow_clone(), &vs, group)?;
    let options = SgdOptions { lr: 0.1, momentum: 0.9, ..Default::default() };
    let mut optimizer = Sgd::new(&vs, options)?;
    let (vs, optimizer, architecture) = (&mut vs, &mut optimizer, "weight");
    let mut training = Training { architecture, vs, optimizer, scheduler: None, scaler: None };
    let first = resume(group, &mut training, path)?;
    for step in first..until {
        training.optimizer.zero_grad()?;
        model.backward(&model.forward(|weight| weight.square().sum(Kind::Float))?)?;
        training.optimizer.step()?;
        training.save(path, &(step + 1), group)?;
    }
    Ok((weight, until - first))
}

pub fn check(
    group: &ProcessGroup,
    resume: impl Fn(&ProcessGroup, &mut Training<'_>, &Path) -> Result<u64>,
) -> Result<()> {
    let mut job = std::process::id();
    group.broadcast_object(&mut job, 0)?;
    let file = |name| std::env::temp_dir().join(format!("exercise-{job}-{name}.safetensors"));
    let [whole, killed] = ["whole", "killed"].map(file);
    let (expected, _) = train(group, &resume, &whole, 5)?;
    let _ = train(group, &resume, &killed, 3)?;
    let (weight, steps) = train(group, &resume, &killed, 5)?;
    if group.rank() == 0 {
        [whole, killed].iter().try_for_each(std::fs::remove_file)?;
    }
    agree_equal(group, "the number of steps after the kill", steps, 2)?;
    agree(group, "the weight after 5 steps, with a kill after 3,", &weight, &expected)
}
