//! MNIST and what has its form, as programs let the user choose it.

use clap::ValueEnum;
use std::path::PathBuf;
use tch_parallel::{Error, Result, data::Mnist, data::Split, data::download};

/// Which digits or clothes a program learns to tell apart.
#[derive(Debug, Clone, clap::Args)]
pub struct MnistArgs {
    /// Data set to train on.
    #[arg(long, value_enum, default_value_t = Dataset::Mnist)]
    dataset: Dataset,
    /// Directory of the IDX files; by default 10,000 of MNIST's digits that are part of the program.
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// Download all 70,000 digits of MNIST first.
    #[arg(long, conflicts_with = "data_dir")]
    download: bool,
}

/// Ten classes of 28 by 28 grey pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Dataset {
    /// Handwritten digits.
    Mnist,
    /// Clothes; Debian's package dataset-fashion-mnist has all 70,000.
    FashionMnist,
}

impl MnistArgs {
    /// The training set and the test set.
    pub fn load(&self) -> Result<(Mnist, Mnist)> {
        let directory = match (self.download, self.dataset) {
            (false, _) => self.data_dir.clone(),
            (true, Dataset::Mnist) => Some(download::mnist()?),
            (true, Dataset::FashionMnist) => {
                let expected = "given for MNIST, which alone can be downloaded";
                return Err(Error::argument("--download", "given for Fashion-MNIST", expected));
            }
        };
        let split = |split| match (&directory, self.dataset) {
            (directory, Dataset::FashionMnist) => Mnist::fashion(directory.as_deref(), split),
            (Some(directory), Dataset::Mnist) => Mnist::from_dir(directory, split),
            (None, Dataset::Mnist) => Mnist::embedded(split),
        };
        Ok((split(Split::Train)?, split(Split::Test)?))
    }
}
