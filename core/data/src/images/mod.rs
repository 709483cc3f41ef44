//! Labelled images and their transforms, as in torchvision.

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
