//! `cargo xtask bench BENCHMARK`: measures the same work done in two ways, in turn on the same
//! machine.
//!
//! It only prints a table: a benchmark is not a test, and a missed target is not a failure.

mod data_parallel;
mod exchange;
mod fsdp;
mod imagenet;
mod images;
mod job;
mod mnist;
mod report;

use anyhow::Result;
use clap::{Args, Subcommand};

use crate::workspace::Workspace;

#[derive(Subcommand)]
pub(crate) enum Benchmark {
    /// Fashion-MNIST, two ranks over gloo, one epoch, batch size 128: Rust against Python.
    Mnist(mnist::Options),
    /// Between the ranks of this machine: shared memory against sockets, and two ranks against one.
    Exchange(mnist::Options),
    /// A GPT of 204 MiB on two ranks: sharded against DistributedDataParallel, and Rust against Python.
    Fsdp(fsdp::Options),
    /// BERT, forward and backward pass: Rust against Python on one device, and two replicas against one.
    DataParallel(data_parallel::Options),
    /// From JPEG files to augmented batches: Rust against torchvision.
    Images(images::Options),
    /// Training steps of a small PyramidNet and of ResNet-18: Rust against Python.
    Imagenet(imagenet::Options),
}

/// How often each side is measured.
#[derive(Args)]
struct Rounds {
    /// Run each side N times and compare the medians.
    #[arg(long = "rounds", value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    number: u32,
}

pub(crate) fn run(workspace: &Workspace, benchmark: &Benchmark) -> Result<()> {
    match benchmark {
        Benchmark::Mnist(options) => mnist::run(workspace, options),
        Benchmark::Exchange(options) => exchange::run(workspace, options),
        Benchmark::Fsdp(options) => fsdp::run(workspace, options),
        Benchmark::DataParallel(options) => data_parallel::run(workspace, options),
        Benchmark::Images(options) => images::run(workspace, options),
        Benchmark::Imagenet(options) => imagenet::run(workspace, options),
    }
}
