//! The value of `--nproc-per-node`: the number of ranks on this node.

use anyhow::{Context, Result, bail, ensure};
use std::thread::available_parallelism;
use tch_parallel_contract::gpus;

pub(crate) fn parse_nproc(text: &str) -> Result<u16> {
    match (text, gpus()) {
        ("cpu", _) | ("auto", 0) => {
            let cores = available_parallelism().context("cannot count the cores")?;
            Ok(u16::try_from(cores.get())?)
        }
        ("gpu", 0) => bail!(
            "this machine has no GPU: expected /dev/nvidia0 or another number, not hidden by \
             CUDA_VISIBLE_DEVICES"
        ),
        ("gpu" | "auto", count) => Ok(u16::try_from(count)?),
        (number, _) => {
            let count =
                number.parse().ok().context("expected gpu, cpu, auto or a number of ranks")?;
            ensure!(count > 0, "the world size would be 0: give at least one rank");
            Ok(count)
        }
    }
}
