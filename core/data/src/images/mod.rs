//! Labelled images and their transforms, as in torchvision.
//!
//! | file | what it holds |
//! |---|---|
//! | `image` | [`Image`]: 8-bit RGB pixels |
//! | `source` | [`ImageSource`]: numbered images with labels |
//! | `image_folder` | [`ImageFolder`]: JPEG and PNG files, one folder per class |
//! | `cifar10` | [`Cifar10`]: the binary files of CIFAR-10 |
//! | `mnist_images` | [`MnistImages`]: MNIST or Fashion-MNIST in CIFAR-10's format |
//! | `synthetic` | [`SyntheticImages`]: noise, for benchmarks without data |
//! | `decode` | [`decode()`]: decodes files |
//! | [`transforms`] | crops, flips, resizing, normalisation |
//! | `sample_rng` | [`SampleRng`]: random numbers for transforms |
//! | `image_dataset` | [`ImageDataset`]: makes batches from a source and its transforms |

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
