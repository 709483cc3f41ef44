//! `cargo xtask bench BENCHMARK`: measures the same work done in two ways, in turn on the same machine. It only prints
//! a table: a benchmark is not a test, and a missed target is not a failure.

mod data_parallel;
mod fsdp;
mod imagenet;
mod images;
mod job;
mod mnist;
mod report;

use crate::prelude::*;
use crate::setup::{Venv, ensure_python};
use job::Log;
use report::{MEGABYTES, MILLISECONDS, Sides, Table};

#[derive(Subcommand)]
pub(crate) enum Benchmark {
    /// Fashion-MNIST, two ranks over gloo, one epoch, batch size 128: Rust against Python.
    Mnist(mnist::Options),
    /// A GPT of 204 MiB on two ranks: sharded against DistributedDataParallel, and Rust against Python.
    Fsdp(Rounds),
    /// BERT, forward and backward pass: Rust against Python on one device, and two replicas against one.
    DataParallel(Rounds),
    /// From JPEG files to augmented batches: Rust against torchvision.
    Images(Rounds),
    /// Training steps of a small PyramidNet and of ResNet-18: Rust against Python.
    Imagenet(Rounds),
}

/// How often each side is measured.
#[derive(Args)]
pub(crate) struct Rounds {
    /// Run each side N times and compare the medians.
    #[arg(long = "rounds", value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    number: u32,
}

impl Rounds {
    /// Measures several figures in each round, and returns a list of each.
    fn run<F, const N: usize>(&self, round: impl Fn() -> Result<[F; N]>) -> Result<[Vec<F>; N]> {
        let mut all: [Vec<F>; N] = std::array::from_fn(|_| Vec::new());
        for number in 1..=self.number {
            eprintln!("round {number}/{}", self.number);
            all.iter_mut().zip(round()?).for_each(|(figures, figure)| figures.push(figure));
        }
        Ok(all)
    }
}

pub(crate) fn run(workspace: &Workspace, benchmark: &Benchmark) -> Result<()> {
    let venv = &ensure_python(workspace)?;
    match benchmark {
        Benchmark::Mnist(options) => mnist::run(workspace, venv, options),
        Benchmark::Fsdp(rounds) => fsdp::run(workspace, venv, rounds),
        Benchmark::DataParallel(rounds) => data_parallel::run(workspace, venv, rounds),
        Benchmark::Images(rounds) => images::run(workspace, venv, rounds),
        Benchmark::Imagenet(rounds) => imagenet::run(workspace, venv, rounds),
    }?;
    println!("{}", report::machine(workspace.release));
    Ok(())
}
