//! MNIST: handwritten digits of 28×28 pixels; and Fashion-MNIST, pieces of clothing in its format.

use super::{Dataset, batch_memory::BatchMemory, idx::Idx};
use crate::{Error, Result, check, check_file};
use std::{iter::once, path::Path, path::PathBuf, sync::Arc};
use tch::Tensor;

/// The directory of Debian's package `dataset-fashion-mnist`.
const FASHION_MNIST_DIR: &str = "/usr/share/datasets/fashion-mnist";

/// Rows and columns of an image.
pub(super) const SIDE: usize = 28;
const PIXELS: usize = SIDE * SIDE;
const CLASSES: u8 = 10;

/// The mean of all pixels of MNIST's training images, with 0 for black and 1 for white.
const MEAN: f32 = 0.1307;
/// Its standard deviation.
const STD: f32 = 0.3081;

/// One half of the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Split {
    /// For training.
    Train,
    /// For evaluation.
    Test,
}

impl Split {
    /// The names of the files of images and of labels.
    fn files(self) -> [&'static str; 2] {
        match self {
            Split::Train => ["train-images-idx3-ubyte", "train-labels-idx1-ubyte"],
            Split::Test => ["t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"],
        }
    }
}

/// Images with their class numbers.
///
/// A batch is `(images, labels)`: 32-bit floats `[batch, 1, 28, 28]` and 64-bit integers `[batch]`.
/// The pixels equal those of torchvision's `ToTensor` and `Normalize((0.1307,), (0.3081,))` to the
/// last bit. `torchvision.datasets.MNIST` and `FashionMNIST`.
///
/// ```
/// use tch_parallel::data::{Dataset, Mnist, Split};
///
/// let digits = Mnist::embedded(Split::Test)?;
/// assert_eq!(digits.len(), 2000);
/// let (images, labels) = digits.batch(&[0, 7, 1999], 0)?;
/// assert_eq!((images.size(), labels.size()), (vec![3, 1, 28, 28], vec![3]));
/// # Ok::<(), tch_parallel::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Mnist {
    /// Bytes, a quarter of the memory that floats would take.
    images: Vec<u8>,
    labels: Vec<u8>,
    /// Shared with clones.
    memory: Arc<BatchMemory>,
}

impl Mnist {
    /// The data set included in this library: 8,000 training and 2,000 test images of MNIST.
    ///
    /// # Errors
    /// Only if the library was built with damaged data.
    pub fn embedded(split: Split) -> Result<Self> {
        macro_rules! asset {
            ($file:literal) => {
                include_bytes!(concat!("../assets/mnist-10k/", $file, ".gz"))
            };
        }
        let (images, labels): (&[u8], &[u8]) = match split {
            Split::Train => (asset!("train-images-idx3-ubyte"), asset!("train-labels-idx1-ubyte")),
            Split::Test => (asset!("t10k-images-idx3-ubyte"), asset!("t10k-labels-idx1-ubyte")),
        };
        let [images_path, labels_path] = split.files().map(Path::new);
        let (images, labels) = (Idx::parse(images, images_path)?, Idx::parse(labels, labels_path)?);
        Self::new(images, images_path, labels, labels_path)
    }

    /// Reads the files from `dir` or torchvision's folders in it (`MNIST/raw`, `FashionMNIST/raw`), gzipped or not.
    ///
    /// # Errors
    /// [`Error::Io`] if a file cannot be read; [`Error::Format`] if one is missing or damaged, if
    /// images are not 28×28, if a label is above 9, or if there are not as many labels as images.
    pub fn from_dir(dir: impl AsRef<Path>, split: Split) -> Result<Self> {
        Self::below(dir.as_ref(), &["MNIST/raw", "FashionMNIST/raw"], split)
    }

    /// Reads the files from `dir`, or from the first of these folders in it that has them.
    fn below(dir: &Path, folders: &[&str], split: Split) -> Result<Self> {
        // A missing directory is a different mistake from an empty one.
        std::fs::read_dir(dir).map_err(Error::io("read directory", dir))?;
        let [images, labels] = split.files();
        let missing = |file: &str| format!("holds no {file} and no {file}.gz");
        let images_in = |folder: PathBuf| Some((raw_or_gz(&folder, images)?, folder));
        let below = folders.iter().map(|folder| dir.join(folder));
        let Some((images_path, folder)) = once(dir.to_owned()).chain(below).find_map(images_in)
        else {
            let found = format!("{}, also not in {}", missing(images), folders.join(" or "));
            let expected = "the IDX files of MNIST or of a data set in its format";
            return Err(Error::format(dir, found, expected));
        };
        // From the same folder: labels of another data set must not be mixed in.
        let Some(labels_path) = raw_or_gz(&folder, labels) else {
            let expected = format!("the labels of {}", images_path.display());
            return Err(Error::format(&folder, missing(labels), expected));
        };
        Self::new(Idx::read(&images_path)?, &images_path, Idx::read(&labels_path)?, &labels_path)
    }

    /// Fashion-MNIST, 60,000 training and 10,000 test images, from `dir` or `FashionMNIST/raw` in it, or as installed by
    /// Debian's package `dataset-fashion-mnist`.
    ///
    /// # Errors
    /// Those of [`from_dir`](Self::from_dir), and [`Error::Format`] if `dir` is `None` and the package is not installed.
    pub fn fashion(dir: Option<&Path>, split: Split) -> Result<Self> {
        if let Some(dir) = dir {
            return Self::below(dir, &["FashionMNIST/raw"], split);
        }
        let dir = Path::new(FASHION_MNIST_DIR);
        let expected = "Fashion-MNIST; on Debian and Ubuntu \
                        `apt-get install dataset-fashion-mnist` puts it there";
        check_file(dir.is_dir(), dir, "does not exist", expected)?;
        Self::from_dir(FASHION_MNIST_DIR, split)
    }

    fn new(images: Idx<3>, images_path: &Path, labels: Idx<1>, labels_path: &Path) -> Result<Self> {
        let [count, rows, columns] = images.dims;
        let found = format_args!("holds images of {rows}×{columns} pixels");
        let expected = format_args!("images of {SIDE}×{SIDE} pixels");
        check_file([rows, columns] == [SIDE, SIDE], images_path, found, expected)?;
        let found = format!("holds {} labels", labels.dims[0]);
        let expected = format!("{count}, one for each image in {}", images_path.display());
        check_file(labels.dims == [count], labels_path, found, expected)?;
        check_labels(labels.data.iter(), labels_path)?;
        Ok(Self { images: images.data, labels: labels.data, memory: Arc::default() })
    }

    /// The class of every image, from 0 to 9.
    pub fn labels(&self) -> &[u8] {
        &self.labels
    }

    /// The bytes of image `index`, row by row.
    pub(super) fn pixels(&self, index: usize) -> &[u8] {
        &self.images[index * PIXELS..][..PIXELS]
    }
}

impl Dataset for Mnist {
    type Batch = (Tensor, Tensor);

    fn len(&self) -> usize {
        self.labels.len()
    }

    fn batch(&self, indices: &[usize], _epoch: u64) -> Result<(Tensor, Tensor)> {
        let label = |&index: &usize| {
            let expected = format_args!("less than the number of images, {}", self.len());
            check(index < self.len(), "index", index, expected)?;
            Ok(i64::from(self.labels[index]))
        };
        let labels = indices.iter().map(label).collect::<Result<Vec<_>>>()?;
        let size = [indices.len(), 1, SIDE, SIDE].map(|dim| dim as i64);
        let images = self.memory.tensor(&size, |elements| {
            for (image, &index) in elements.chunks_exact_mut(PIXELS).zip(indices) {
                for (element, &pixel) in image.iter_mut().zip(self.pixels(index)) {
                    // In torchvision's order. Vector instructions make this faster than a table of all 256 values.
                    *element = (f32::from(pixel) / 255.0 - MEAN) / STD;
                }
            }
        })?;
        Ok((images, Tensor::f_from_slice(&labels)?))
    }
}

/// Refuses a file with labels of more than ten classes; CIFAR-10 has as many.
pub(super) fn check_labels<'a>(labels: impl Iterator<Item = &'a u8>, path: &Path) -> Result<()> {
    labels.enumerate().try_for_each(|(index, &label)| {
        let found = format_args!("holds the label {label} at index {index}");
        check_file(label < CLASSES, path, found, format_args!("labels from 0 to {}", CLASSES - 1))
    })
}

/// The file with this name, with or without `.gz`. Uncompressed files have priority: they are faster to read.
fn raw_or_gz(folder: &Path, name: &str) -> Option<PathBuf> {
    [folder.join(name), folder.join(format!("{name}.gz"))].into_iter().find(|path| path.is_file())
}

#[cfg(test)]
mod tests;
