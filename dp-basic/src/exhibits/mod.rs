//! What explains and compares rather than trains.
//!
//! | exhibit | what it shows |
//! |---|---|
//! | [`trace`] | one step of DataParallel, part by part: where each tensor is, bytes copied, times |
//! | [`answers`] | the questions of two forum threads, answered by numbers |
//! | [`model_parallel`] | a model in two parts on two devices |
//! | [`speedup`] | a step on 1, 2 and 4 devices, timed |
//!
//! `trace` and `model-parallel` share `spans`: which device worked when, as tables and as a picture.

pub mod answers;
pub mod model_parallel;
mod spans;
pub mod speedup;
pub mod trace;

use anyhow::{Result, ensure};

/// Refuses a batch without rows, before a large model is built.
fn check_batch(batch: i64) -> Result<()> {
    ensure!(batch > 0, "--batch is {batch}, but must be at least 1: a row is needed to train");
    Ok(())
}
