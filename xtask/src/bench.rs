//! `cargo xtask bench JOB`: the same work done in two ways, in turns, on the same machine.
//!
//! A table is all that comes of it: a benchmark is no test, and a missed target no failure.

mod data_parallel;
mod imagenet;
mod images;
mod job;
mod mnist;
mod report;

use anyhow::Result;
use clap::{Args, Subcommand};

#[derive(Subcommand)]
pub(crate) enum Benchmark {
    /// Fashion-MNIST, two ranks over gloo, one epoch, batch 128.
    Mnist(mnist::Options),
    /// BERT, forward and backward: Rust against Python on one device, and two replicas against one.
    DataParallel(data_parallel::Options),
    /// JPEG files become augmented batches: Rust against torchvision.
    Images(images::Options),
    /// A small PyramidNet and ResNet-18, a training step: Rust against Python.
    Imagenet(imagenet::Options),
}

/// How often a benchmark measures.
#[derive(Args)]
struct Rounds {
    /// How often each side does the job; the medians are compared.
    #[arg(long = "rounds", value_name = "ROUNDS", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    number: u32,
}

pub(crate) fn run(benchmark: &Benchmark) -> Result<()> {
    match benchmark {
        Benchmark::Mnist(options) => mnist::run(options),
        Benchmark::DataParallel(options) => data_parallel::run(options),
        Benchmark::Images(options) => images::run(options),
        Benchmark::Imagenet(options) => imagenet::run(options),
    }
}
