//! Image preprocessing: torchvision's transforms with their names, defaults and random distributions.
//!
//! | file | what it holds |
//! |---|---|
//! | `augmentation` | random: [`RandomResizedCrop`] for training on ImageNet, [`RandomCrop`] for CIFAR-10, [`RandomHorizontalFlip`] for both |
//! | `resize` | [`Resize`] and [`CenterCrop`]: an image at a fixed size, for evaluation |
//! | `normalize` | [`Normalize`]: bytes become floats with mean 0 and standard deviation 1 |
//! | [`functional`] | the deterministic operations behind them |

use super::{Image, SampleRng};
use crate::Result;
use std::fmt::Debug;

mod augmentation;
pub mod functional;
mod normalize;
mod resize;

pub use augmentation::{RandomCrop, RandomHorizontalFlip, RandomResizedCrop};
pub use normalize::Normalize;
pub use resize::{CenterCrop, Resize};

/// Transforms an image.
///
/// ```
/// use tch_parallel::data::transforms::{CenterCrop, Transform};
/// use tch_parallel::data::{Image, SampleRng};
///
/// let image = Image::new(640, 480, vec![0; 640 * 480 * 3])?;
/// let (seed, epoch, index) = (42, 0, 7);
/// let square = CenterCrop::new(224).apply(image, &mut SampleRng::new(seed, epoch, index))?;
/// assert_eq!((square.width(), square.height()), (224, 224));
/// # Ok::<(), tch_parallel::Error>(())
/// ```
pub trait Transform: Debug + Send + Sync {
    /// Returns the transformed image. All randomness comes from `rng`, so the result depends on nothing else.
    ///
    /// # Errors
    /// [`Error::Argument`](crate::Error::Argument) for an image that the transform does not support.
    fn apply(&self, image: Image, rng: &mut SampleRng) -> Result<Image>;
}
