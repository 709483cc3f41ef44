//! One training, up to an accuracy.

use crate::{noise_scale::NoiseScale, task::Dataset, trust_ratio::TrustRatio};
use anyhow::{Result, ensure};
use clap::ValueEnum;
use exhibit_kit::weights;
use report::{positive, println};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use tch::nn::{ModuleT, VarStore};
use tch::{Device, Kind, Tensor, no_grad};
use tch_parallel::data::Split;
use tch_parallel::optim::lr_scheduler::{LinearLr, LrScheduler};
use tch_parallel::optim::{Optimizer, ParamGroupOptimizer, Sgd, SgdOptions};

/// Train until the test set reaches an accuracy, and print what it took as a line of JSON.
#[derive(Debug, Clone, clap::Args, Serialize, Deserialize)]
#[command(
    args_override_self = true,
    after_help = "Examples:
  scaling train-to --batch-size 1024 --lr 0.16 --warm-up-epochs 1
  scaling train-to --dataset fashion-mnist --accuracy 0.85 --batch-size 512 --lr 0.08 --ranks 8
  scaling train-to --dataset cifar10 --accuracy 0.5 --batch-size 2048 --method lamb"
)]
pub struct Args {
    /// What to learn.
    #[arg(long, value_enum, default_value_t = Dataset::Mnist)]
    pub dataset: Dataset,
    /// Directory of the data set's files.
    #[arg(long, value_name = "DIR")]
    #[serde(skip)]
    data_dir: Option<PathBuf>,
    /// Batch size of all ranks together.
    #[arg(long, default_value_t = BASE, value_parser = positive())]
    pub batch_size: usize,
    /// The optimizer.
    #[arg(long, value_enum, default_value_t = Method::Sgd)]
    pub method: Method,
    /// Learning rate.
    #[arg(long, default_value_t = 0.01)]
    pub lr: f64,
    /// Epochs of warm-up: the rate rises to --lr from the rate that the linear rule gives a batch of 32.
    #[arg(long, default_value_t = 0)]
    pub warm_up_epochs: usize,
    /// Seed of the weights and of the order of the samples.
    #[arg(long, default_value_t = 0)]
    seed: i64,
    /// Accuracy on the test set at which to stop, from 0 to 1.
    #[arg(long, default_value_t = 0.9)]
    pub accuracy: f64,
    /// Give up after this many epochs.
    #[arg(long, default_value_t = 20, value_parser = positive())]
    epochs: usize,
    /// Divide each batch as if among N ranks, and measure the gradient noise scale.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = positive())]
    ranks: usize,
}

/// The batch that the linear rule starts from.
pub const BASE: usize = 32;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Method {
    /// SGD with a momentum of 0.9.
    Sgd,
    /// The same, with a rate for each layer that is proportional to the norm of its weights.
    Lars,
    /// Adam with such a rate.
    Lamb,
}

/// A training and its result.
#[derive(Debug, Serialize, Deserialize)]
pub struct Run {
    #[serde(flatten)]
    pub args: Args,
    /// None if the accuracy was not reached.
    pub steps: Option<usize>,
    /// The last accuracy. None if the loss became infinite or NaN.
    pub reached: Option<f32>,
    /// Steps, and the gradient noise scale in samples.
    pub noise_scale: Vec<(usize, f32)>,
}

pub fn run(args: &Args) -> Result<()> {
    println!("{}", serde_json::to_string(&train(args)?)?);
    Ok(())
}

fn train(args: &Args) -> Result<Run> {
    let &Args { dataset, batch_size, lr, ranks, .. } = args;
    let load = |split| dataset.load(args.data_dir.as_deref(), split);
    let ((images, labels), test_set) = (load(Split::Train)?, load(Split::Test)?);
    let samples = labels.size()[0];
    ensure!(
        batch_size.is_multiple_of(ranks) && batch_size <= samples as usize,
        "--batch-size is {batch_size}, but must be a multiple of --ranks, {ranks}, and at most {samples}"
    );
    let per_epoch = samples as usize / batch_size;

    tch::manual_seed(args.seed);
    let vs = VarStore::new(Device::Cpu);
    let network = dataset.network(&vs.root());
    let sgd = SgdOptions { lr, momentum: 0.9, ..Default::default() };
    let layer_wise = |is_lamb| ParamGroupOptimizer::new(&vs, TrustRatio { lr, is_lamb });
    let mut optimizer: Box<dyn Optimizer> = match args.method {
        Method::Sgd => Box::new(Sgd::new(&vs, sgd)?),
        Method::Lars => Box::new(layer_wise(false)?),
        Method::Lamb => Box::new(layer_wise(true)?),
    };
    // ANCHOR: warm_up
    let base = BASE as f64 / batch_size as f64;
    let warm_up = LinearLr {
        start_factor: if args.warm_up_epochs > 0 { base.min(1.0) } else { 1.0 },
        total_iters: (args.warm_up_epochs * per_epoch).max(1) as u64,
        ..Default::default()
    };
    let mut warm_up = LrScheduler::new(&mut *optimizer, warm_up)?;
    // ANCHOR_END: warm_up

    let mut run = Run { args: args.clone(), steps: None, reached: None, noise_scale: Vec::new() };
    let (mut order, mut noise_scale, mut next_test) = (Tensor::new(), NoiseScale::default(), 10);
    let last = args.epochs * per_epoch;
    for step in 0..last {
        if step % per_epoch == 0 {
            order = Tensor::f_randperm(samples, (Kind::Int64, Device::Cpu))?;
        }
        optimizer.zero_grad()?;
        // ANCHOR: ranks
        // What each rank computes. `backward` adds up their shares of the mean gradient, as an
        // all-reduce would.
        let (mut total_loss, mut of_ranks, mut mean) = (0.0, 0.0, None);
        for rank in 0..ranks {
            let first = (step % per_epoch * batch_size + rank * (batch_size / ranks)) as i64;
            let part = order.f_slice(0, first, first + (batch_size / ranks) as i64, 1)?;
            let outputs = network.forward_t(&images.f_index_select(0, &part)?, true);
            let loss = outputs.cross_entropy_for_logits(&labels.f_index_select(0, &part)?);
            (&loss / ranks as f64).backward();
            total_loss += loss.f_double_value(&[])?;
            if ranks > 1 {
                let sum = weights::gradients(&vs);
                let share = mean.map_or_else(|| sum.shallow_clone(), |before| &sum - before);
                of_ranks += squared_norm(&(share * ranks as f64))? / ranks as f64;
                mean = Some(sum);
            }
        }
        if let Some(mean) = mean {
            let of_mean = squared_norm(&mean)?;
            noise_scale.add([of_ranks, of_mean], [batch_size / ranks, batch_size]);
        }
        // ANCHOR_END: ranks
        optimizer.step()?;
        warm_up.step(&mut *optimizer)?;
        if !total_loss.is_finite() {
            run.reached = None;
            break;
        }
        let steps = step + 1;
        if steps >= next_test || steps == last {
            next_test = steps + steps / 10;
            let outputs = no_grad(|| network.forward_t(&test_set.0, false));
            let reached = outputs.accuracy_for_logits(&test_set.1).f_double_value(&[])?;
            run.reached = Some(reached as f32);
            run.noise_scale.extend((ranks > 1).then(|| (steps, noise_scale.samples() as f32)));
            if reached >= args.accuracy {
                run.steps = Some(steps);
                break;
            }
        }
    }
    Ok(run)
}

fn squared_norm(tensor: &Tensor) -> Result<f64> {
    Ok(tensor.f_square()?.f_sum(Kind::Double)?.f_double_value(&[])?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use report::parse_flags;

    /// The steps to 85 % of the digits in four epochs.
    fn steps(flags: &str) -> Option<usize> {
        let flags = format!("--accuracy 0.85 --epochs 4 --batch-size 800 {flags}");
        train(&parse_flags(flags.split_whitespace()).unwrap()).unwrap().steps
    }

    #[test]
    fn a_large_batch_fails_with_a_low_rate_and_each_remedy_reaches_the_accuracy() {
        assert_eq!(steps("--lr 0.001"), None);
        let linear = steps("--lr 0.025").unwrap();
        // The rate is lower at first.
        assert!(steps("--lr 0.025 --warm-up-epochs 1").unwrap() > linear);
        for method in ["lars", "lamb"] {
            assert!(steps(&format!("--method {method}")).is_some(), "{method}");
        }
    }
}
