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
                number.parse().ok().context("expected a number of ranks, gpu, cpu or auto")?;
            ensure!(count > 0, "the world size would be 0: give at least one rank");
            Ok(count)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_names_are_parsed() {
        assert_eq!(parse_nproc("4").unwrap(), 4);
        assert!(parse_nproc("cpu").unwrap() >= 1);
        assert!(parse_nproc("auto").unwrap() >= 1);
        for wrong in ["0", "-1", "two", "", "1.5", "70000"] {
            assert!(parse_nproc(wrong).is_err(), "{wrong:?}");
        }
    }
}
