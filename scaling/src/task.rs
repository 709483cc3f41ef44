//! What is learnt: small data sets, kept in memory, by networks that are cheap enough to be trained hundreds of times.

use anyhow::Result;
use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use std::path::Path;
use tch::Tensor;
use tch::nn::{self, SequentialT};
use tch_parallel::data::transforms::Normalize;
use tch_parallel::data::{Cifar10, Dataset as _, ImageDataset, Mnist, Split, download};
use tch_parallel::nn::{ConvOptions, LinearOptions, conv2d, linear};

/// A data set of ten classes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Dataset {
    /// Digits, learnt by an MLP; by default the 10,000 that are part of the program.
    Mnist,
    /// Clothes, learnt by an MLP; by default those of Debian's package dataset-fashion-mnist.
    FashionMnist,
    /// Photographs, halved to 16×16 pixels, learnt by two convolutions; by default downloaded.
    Cifar10,
}

impl Dataset {
    /// The images and labels of a split.
    pub fn load(self, directory: Option<&Path>, split: Split) -> Result<(Tensor, Tensor)> {
        let mnist = match (self, directory) {
            (Dataset::Cifar10, _) => {
                let directory = directory.map_or_else(download::cifar10, |it| Ok(it.into()))?;
                let images = Cifar10::from_dir(directory, split)?;
                let images = ImageDataset::new(images, Vec::new(), Normalize::CIFAR10, 0)?;
                let (images, labels) = images.batch(&Vec::from_iter(0..images.len()), 0)?;
                return Ok((images.f_avg_pool2d(2, 2, 0, false, true, None)?, labels));
            }
            (Dataset::FashionMnist, _) => Mnist::fashion(directory, split)?,
            (Dataset::Mnist, Some(directory)) => Mnist::from_dir(directory, split)?,
            (Dataset::Mnist, None) => Mnist::embedded(split)?,
        };
        Ok(mnist.batch(&Vec::from_iter(0..mnist.len()), 0)?)
    }

    // ANCHOR: network
    /// With 101,770 parameters, or 10,218 for CIFAR-10.
    pub fn network(self, path: &nn::Path<'_>) -> SequentialT {
        let halves = ConvOptions { stride: 2, padding: 1, ..Default::default() };
        let layer = |name, from, to| linear(path / name, from, to, LinearOptions::default());
        match self {
            Dataset::Cifar10 => nn::seq_t()
                .add(conv2d(path / "0", 3, 16, 3, halves))
                .add_fn(|x| x.relu())
                .add(conv2d(path / "2", 16, 32, 3, halves))
                .add_fn(|x| x.relu().flatten(1, -1))
                .add(layer("5", 512, 10)),
            _ => nn::seq_t()
                .add_fn(|images| images.flatten(1, -1))
                .add(layer("1", 784, 128))
                .add_fn(|x| x.relu())
                .add(layer("3", 128, 10)),
        }
    }
    // ANCHOR_END: network
}
