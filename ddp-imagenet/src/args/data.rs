//! The images, and how they become batches.

use anyhow::{Result, bail, ensure};
use clap::{ValueEnum, value_parser};
use ddp_imagenet::models::Arch;
use std::path::{Path, PathBuf};
use tch_parallel::Error;
use tch_parallel::data::transforms::{CenterCrop, Normalize, RandomCrop, RandomHorizontalFlip};
use tch_parallel::data::transforms::{RandomResizedCrop, Resize, Transform};
use tch_parallel::data::{Cifar10, DataLoaderOptions, FASHION_MNIST_CLASSES, ImageDataset};
use tch_parallel::data::{ImageFolder, ImageFolderOptions, ImageSource, MNIST_CLASSES, Mnist};
use tch_parallel::data::{MnistImages, Split, SyntheticImages, SyntheticImagesOptions, download};

/// The images of a training or a validation.
pub type Images = ImageDataset<Box<dyn ImageSource>>;

#[derive(Debug, Clone, clap::Args)]
pub struct DataArgs {
    /// Directory of the images: with train and val for imagefolder, with their own files for the others.
    #[arg(value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Data set to train on.
    #[arg(long, value_enum, default_value_t = Source::Imagefolder)]
    pub dataset: Source,
    /// Same as --dataset synthetic.
    #[arg(long, conflicts_with = "dataset")]
    pub dummy: bool,
    /// Download CIFAR-10, or all 70,000 digits of MNIST, first.
    #[arg(long, conflicts_with = "dir")]
    pub download: bool,
    /// Height and width of the network's input, for imagefolder and synthetic [default: 224].
    #[arg(long, value_name = "PIXELS", value_parser = value_parser!(u16).range(1..))]
    pub image_size: Option<u16>,
    /// Do not augment training images: at most crop their centre.
    #[arg(long)]
    pub no_augment: bool,
    /// Skip images that cannot be read, and count them, instead of stopping.
    #[arg(long)]
    pub skip_bad: bool,
    /// Images per batch, for all ranks of this host together.
    #[arg(short, long, default_value_t = 256)]
    pub batch_size: usize,
    /// Threads that load batches ahead, for all ranks of this host together; 0 loads them in the training loop.
    #[arg(short = 'j', long, visible_alias = "num-workers", default_value_t = 4)]
    pub workers: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Source {
    /// JPEG and PNG files in one folder per class, as in ImageNet.
    Imagefolder,
    /// CIFAR-10's binary files.
    Cifar10,
    /// Handwritten digits as images of 32 by 32 pixels; without DIR the 10,000 that are part of the program.
    Mnist,
    /// Clothes as images of 32 by 32 pixels; Debian's package dataset-fashion-mnist has all 70,000.
    FashionMnist,
    /// Noise, for measuring speed.
    Synthetic,
}

/// Height and width of the images that networks for ImageNet take.
const IMAGENET_SIZE: u16 = 224;

/// Images of ImageNet's validation set.
const IMAGENET_VAL_LEN: usize = 50_000;

/// Height and width of CIFAR-10's images.
const CIFAR_SIZE: usize = 32;

/// By how many pixels at most a random crop moves them.
const CIFAR_PADDING: usize = 4;

impl DataArgs {
    pub fn source(&self) -> Source {
        if self.dummy { Source::Synthetic } else { self.dataset }
    }

    /// The training set and the validation set for this network. `seed` determines the augmentation.
    pub fn load(&self, arch: Arch, seed: u64) -> Result<(Images, Images)> {
        let (source, size) = (self.source(), self.image_size()?);
        arch.check_image_size(size)?;
        let [train, val] = self.splits(size)?;
        let transforms = if self.no_augment { source.as_is(size) } else { source.augmented(size) };
        let normalize = source.normalize();
        let train_set = ImageDataset::new(train, transforms, normalize, seed)?;
        Ok((train_set, ImageDataset::new(val, source.as_is(size), normalize, seed)?))
    }

    /// How each of a host's `ranks` loads its share of the batches, divided as in main.py. `pin_memory`:
    /// whether batches are copied to a GPU. Refuses a batch with fewer images than ranks.
    pub fn loader(&self, ranks: usize, pin_memory: bool) -> Result<DataLoaderOptions> {
        let expected = format!("at least {ranks}, an image for each rank of this host");
        let is_enough = self.batch_size >= ranks;
        ensure!(is_enough, Error::argument("--batch-size", self.batch_size, expected));
        let (batch_size, num_workers) = (self.batch_size / ranks, self.workers.div_ceil(ranks));
        Ok(DataLoaderOptions { batch_size, num_workers, pin_memory, ..Default::default() })
    }

    fn image_size(&self) -> Result<usize> {
        let expected = format!("left out: images of this data set have {CIFAR_SIZE} pixels");
        Ok(match (self.source(), self.image_size) {
            (Source::Imagefolder | Source::Synthetic, size) => size.unwrap_or(IMAGENET_SIZE).into(),
            (_, None) => CIFAR_SIZE,
            (_, Some(size)) => bail!(Error::argument("--image-size", size, expected)),
        })
    }

    /// The images of training and validation, before any transform.
    fn splits(&self, size: usize) -> Result<[Box<dyn ImageSource>; 2]> {
        let dir = self.dir()?;
        let mnist = |split| -> Result<Box<dyn ImageSource>> {
            let is_fashion = self.source() == Source::FashionMnist;
            let mnist = match &dir {
                dir if is_fashion => Mnist::fashion(dir.as_deref(), split)?,
                Some(dir) => Mnist::from_dir(dir, split)?,
                None => Mnist::embedded(split)?,
            };
            let classes = if is_fashion { FASHION_MNIST_CLASSES } else { MNIST_CLASSES };
            Ok(Box::new(MnistImages::new(mnist, classes)))
        };
        Ok(match self.source() {
            Source::Imagefolder => {
                let dir = dir.as_deref().unwrap_or(Path::new("imagenet"));
                let options = ImageFolderOptions { skip_bad: self.skip_bad };
                let train = ImageFolder::with_options(dir.join("train"), options)?;
                let val = ImageFolder::with_options(dir.join("val"), options)?;
                train.check_same_classes(&val)?;
                [Box::new(train), Box::new(val)]
            }
            Source::Cifar10 => {
                let dir = dir.as_deref().unwrap_or(Path::new("."));
                let [train, val] = [Split::Train, Split::Test].map(|s| Cifar10::from_dir(dir, s));
                [Box::new(train?), Box::new(val?)]
            }
            Source::Mnist | Source::FashionMnist => [mnist(Split::Train)?, mnist(Split::Test)?],
            Source::Synthetic => {
                let train = SyntheticImagesOptions { size, ..Default::default() };
                let val = SyntheticImagesOptions { len: IMAGENET_VAL_LEN, seed: 1, ..train };
                [Box::new(SyntheticImages::new(train)?), Box::new(SyntheticImages::new(val)?)]
            }
        })
    }

    /// The directory of the files: the user's, or that of the download.
    fn dir(&self) -> Result<Option<PathBuf>> {
        let expected = "left out: only CIFAR-10 and MNIST can be downloaded";
        match (self.download, self.source()) {
            (false, _) => Ok(self.dir.clone()),
            (true, Source::Cifar10) => Ok(Some(download::cifar10()?)),
            (true, Source::Mnist) => Ok(Some(download::mnist()?)),
            (true, _) => bail!(Error::argument("--download", "given", expected)),
        }
    }
}

impl Source {
    // ANCHOR: augmented
    /// The transforms of a validation.
    fn as_is(self, size: usize) -> Vec<Box<dyn Transform>> {
        match self {
            // main.py's 256 for 224.
            Source::Imagefolder => {
                vec![Box::new(Resize::new(size * 8 / 7)), Box::new(CenterCrop::new(size))]
            }
            Source::Cifar10 | Source::Mnist | Source::FashionMnist | Source::Synthetic => vec![],
        }
    }

    /// The transforms of a training, which change an image differently in every epoch.
    fn augmented(self, size: usize) -> Vec<Box<dyn Transform>> {
        match self {
            Source::Imagefolder | Source::Synthetic => vec![
                Box::new(RandomResizedCrop::new(size)),
                Box::new(RandomHorizontalFlip::default()),
            ],
            Source::Cifar10 | Source::FashionMnist => vec![
                Box::new(RandomCrop::new(size, CIFAR_PADDING)),
                Box::new(RandomHorizontalFlip::default()),
            ],
            // A mirrored digit is not a digit.
            Source::Mnist => vec![Box::new(RandomCrop::new(size, CIFAR_PADDING))],
        }
    }
    // ANCHOR_END: augmented

    fn normalize(self) -> Normalize {
        match self {
            Source::Imagefolder | Source::Synthetic => Normalize::IMAGENET,
            Source::Cifar10 => Normalize::CIFAR10,
            Source::Mnist => Normalize::MNIST,
            Source::FashionMnist => Normalize::FASHION_MNIST,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ddp_imagenet::models::resnet::RESNETS;
    use report::parse_flags;
    use tch_parallel::data::Dataset;

    const RESNET: Arch = Arch::ResNet(RESNETS[0]);

    fn data(flags: &str) -> DataArgs {
        parse_flags(flags.split_whitespace()).unwrap()
    }

    fn shares(flags: &str, ranks: usize) -> (usize, usize) {
        let options = data(flags).loader(ranks, false).unwrap();
        (options.batch_size, options.num_workers)
    }

    #[test]
    fn the_ranks_of_a_host_divide_its_batch_and_its_workers() {
        assert_eq!(shares("", 1), (256, 4));
        assert_eq!(shares("", 4), (64, 1));
        assert_eq!(shares("-b 768 -j 4", 4), (192, 1));
        // Workers are rounded up, so that each rank has one; the batch is rounded down (S4.29).
        assert_eq!(shares("-b 100 -j 4", 3), (33, 2));
        assert_eq!(shares("-b 240 -j 8", 4), (60, 2));
        assert_eq!(shares("-j 0", 2), (128, 0));
    }

    #[test]
    fn digits_come_as_images_of_32_by_32_pixels_and_augmentation_moves_them() {
        let augmented = data("--dataset mnist").load(RESNET, 0).unwrap().0;
        let as_is = data("--dataset mnist --no-augment").load(RESNET, 0).unwrap().0;
        let batch = |images: &Images, epoch| images.batch(&[0, 1, 2, 3], epoch).unwrap().0;
        assert_eq!(batch(&as_is, 0).size(), [4, 3, 32, 32]);
        assert_eq!(batch(&as_is, 0), batch(&as_is, 1));
        assert_ne!(batch(&augmented, 0), batch(&augmented, 1));
        assert_eq!(batch(&augmented, 1), batch(&augmented, 1));
    }

    #[test]
    fn synthetic_images_have_the_size_asked_for() {
        let (train, val) = data("--dummy --image-size 64").load(RESNET, 0).unwrap();
        assert_eq!((train.len(), val.len()), (1_281_167, 50_000));
        assert_eq!(train.batch(&[7], 0).unwrap().0.size(), [1, 3, 64, 64]);
    }
}
