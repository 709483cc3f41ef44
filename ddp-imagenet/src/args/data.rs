//! Which images, and how they become batches.

use clap::ValueEnum;
use std::path::{Path, PathBuf};
use tch_parallel::data::transforms::{
    CenterCrop, Normalize, RandomCrop, RandomHorizontalFlip, RandomResizedCrop, Resize, Transform,
};
use tch_parallel::data::{
    Cifar10, DataLoaderOptions, FASHION_MNIST_CLASSES, ImageDataset, ImageFolder,
    ImageFolderOptions, ImageSource, MNIST_CLASSES, Mnist, MnistImages, Split, SyntheticImages,
    SyntheticImagesOptions, download,
};
use tch_parallel::{Error, Result};

/// The images of a training or a validation.
pub type Images = ImageDataset<Box<dyn ImageSource>>;

#[derive(Debug, Clone, clap::Args)]
pub struct DataArgs {
    /// Where the images lie: for imagefolder a directory with train and val, for the others their
    /// own files.
    #[arg(value_name = "DIR")]
    dir: Option<PathBuf>,
    /// What to learn.
    #[arg(long, value_enum, default_value_t = Source::Imagefolder)]
    dataset: Source,
    /// The same as --dataset synthetic.
    #[arg(long, conflicts_with = "dataset")]
    dummy: bool,
    /// Fetch CIFAR-10, or all 70,000 digits of MNIST, first.
    #[arg(long, conflicts_with = "dir")]
    download: bool,
    /// Height and width of what the network sees, for imagefolder and synthetic; by default 224.
    #[arg(long, value_name = "PIXELS")]
    image_size: Option<usize>,
    /// Show the network every image as it is, at its best: cut out of its middle.
    #[arg(long)]
    no_augment: bool,
    /// Leave images out that cannot be read, and count them, instead of stopping.
    #[arg(long)]
    skip_bad: bool,
    /// Images in a batch, of all ranks of this host together.
    #[arg(short, long, default_value_t = 256)]
    batch_size: usize,
    /// Threads of this host that make batches ahead, shared out among its ranks; 0 makes them in the
    /// training loop.
    #[arg(short = 'j', long, default_value_t = 4)]
    workers: usize,
}

/// Where images come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Source {
    /// JPEG and PNG files in a folder for each class, as ImageNet comes.
    Imagefolder,
    /// CIFAR-10, in its binary files.
    Cifar10,
    /// Handwritten digits as images of 32 by 32 pixels; by default 10,000 that are part of the
    /// program.
    Mnist,
    /// Clothes as images of 32 by 32 pixels; Debian's package dataset-fashion-mnist has all 70,000.
    FashionMnist,
    /// Noise, to measure speed with.
    Synthetic,
}

/// Height and width of ImageNet's networks' images.
const IMAGENET_SIZE: usize = 224;

/// Height and width of CIFAR-10's images.
const CIFAR_SIZE: usize = 32;

impl DataArgs {
    /// Where the images come from.
    pub fn source(&self) -> Source {
        if self.dummy { Source::Synthetic } else { self.dataset }
    }

    /// The training set and the validation set. `seed` determines the augmentation.
    ///
    /// # Errors
    /// For flags that do not go together, and for data that is not there or not sound.
    pub fn load(&self, seed: u64) -> Result<(Images, Images)> {
        let size = self.image_size()?;
        let [train, val] = self.sources(size)?;
        if train.classes() != val.classes() {
            return Err(refused(
                "the classes of the validation set",
                difference(val.classes(), train.classes()),
                "those of the training set, by name",
            ));
        }
        let source = self.source();
        let train_transforms =
            if self.no_augment { source.as_is(size) } else { source.augmented(size) };
        let normalize = source.normalize();
        Ok((
            ImageDataset::new(train, train_transforms, normalize, seed)?,
            ImageDataset::new(val, source.as_is(size), normalize, seed)?,
        ))
    }

    /// How each of a host's `ranks` makes its share of the batches: main.py's division.
    ///
    /// # Errors
    /// [`Error::Argument`] for a batch that does not give every rank an image.
    pub fn loader(&self, ranks: usize, pin_memory: bool) -> Result<DataLoaderOptions> {
        if self.batch_size < ranks {
            return Err(refused(
                "--batch-size",
                self.batch_size,
                format!("at least {ranks}, an image for each rank of this host"),
            ));
        }
        Ok(DataLoaderOptions {
            batch_size: self.batch_size / ranks,
            num_workers: self.workers.div_ceil(ranks),
            pin_memory,
            ..Default::default()
        })
    }

    fn image_size(&self) -> Result<usize> {
        match (self.source(), self.image_size) {
            (Source::Imagefolder | Source::Synthetic, size) => Ok(size.unwrap_or(IMAGENET_SIZE)),
            (_, None) => Ok(CIFAR_SIZE),
            (_, Some(size)) => Err(refused(
                "--image-size",
                size,
                format!("left out: images of this data set have {CIFAR_SIZE} pixels"),
            )),
        }
    }

    /// The images of training and validation, as they are.
    fn sources(&self, size: usize) -> Result<[Box<dyn ImageSource>; 2]> {
        let splits = [Split::Train, Split::Test];
        let options = ImageFolderOptions { skip_bad: self.skip_bad };
        Ok(match (self.source(), &self.dir) {
            (Source::Imagefolder, dir) => {
                let dir = dir.as_deref().unwrap_or(Path::new("imagenet"));
                [
                    Box::new(ImageFolder::with_options(&dir.join("train"), options)?),
                    Box::new(ImageFolder::with_options(&dir.join("val"), options)?),
                ]
            }
            (Source::Synthetic, _) => [],
        })
    }
}

impl Source {
    /// What a validation shows the network.
    fn as_is(self, size: usize) -> Vec<Box<dyn Transform>> {
        match self {
            // main.py's 256 for 224.
            Source::Imagefolder => {
                vec![Box::new(Resize::new(size * 8 / 7)), Box::new(CenterCrop::new(size))]
            }
            Source::Cifar10 | Source::Mnist | Source::FashionMnist | Source::Synthetic => vec![],
        }
    }

    /// What a training shows it: the same image is another one in every epoch.
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
            // A digit that is flipped is none.
            Source::Mnist => vec![Box::new(RandomCrop::new(size, CIFAR_PADDING))],
        }
    }

    fn normalize(self) -> Normalize {
        match self {
            Source::Imagefolder | Source::Synthetic => Normalize::IMAGENET,
            Source::Cifar10 => Normalize::CIFAR10,
            Source::Mnist => Normalize::MNIST,
            Source::FashionMnist => Normalize::FASHION_MNIST,
        }
    }
}

/// What is in one list of classes only.
fn difference(found: &[String], expected: &[String]) -> String {
    let without = |a: &[String], b: &[String]| -> Vec<String> {
        a.iter().filter(|name| !b.contains(name)).cloned().collect()
    };
    let (extra, missing) = (without(found, expected), without(expected, found));
    match (extra.is_empty(), missing.is_empty()) {
        (false, true) => format!("those and {extra:?}"),
        (true, _) => format!("without {missing:?}"),
        (false, false) => format!("with {extra:?} and without {missing:?}"),
    }
}
