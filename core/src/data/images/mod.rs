//! Labelled pictures and what is done to them before a network sees them, as in torchvision.
//!
//! | file | what it holds |
//! |---|---|
//! | `image` | [`Image`]: 8-bit RGB pixels |
//! | `source` | [`ImageSource`]: numbered images with their classes |
//! | `image_folder` | [`ImageFolder`]: JPEG and PNG files, a folder for every class |
//! | `cifar10` | [`Cifar10`]: the binary files of CIFAR-10 |
//! | `mnist_images` | [`MnistImages`]: MNIST or Fashion-MNIST in the shape of CIFAR-10 |
//! | `synthetic` | [`SyntheticImages`]: noise, for measuring without data |
//! | `decode` | [`decode()`]: files become images |
//! | [`transforms`] | crops, flips, resizing, normalisation |
//! | `sample_rng` | [`SampleRng`]: what random transforms draw from |
//! | `image_dataset` | [`ImageDataset`]: a source and its transforms; it makes batches |
//! | `batch_memory` | memory of batches that are no longer in use |

mod batch_memory;
mod cifar10;
mod decode;
mod image;
mod image_dataset;
mod image_folder;
mod mnist_images;
mod sample_rng;
mod source;
mod synthetic;
pub mod transforms;

pub use cifar10::{CIFAR10_CLASSES, Cifar10};
pub use decode::{MAX_PIXELS, decode};
pub use image::Image;
pub use image_dataset::ImageDataset;
pub use image_folder::{ImageFolder, ImageFolderOptions};
pub use mnist_images::{FASHION_MNIST_CLASSES, MNIST_CLASSES, MnistImages};
pub use sample_rng::SampleRng;
pub use source::ImageSource;
pub use synthetic::{SyntheticImages, SyntheticImagesOptions};
