//! Sources of images.

use super::Image;
use crate::Result;
use std::sync::Arc;

/// Numbered images with the numbers of their classes: torchvision's data sets before any transform.
///
/// An [`ImageDataset`](super::ImageDataset) makes batches of them.
pub trait ImageSource: Send + Sync {
    /// The number of images.
    fn len(&self) -> usize;

    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The names of the classes; a label is an index into them.
    fn classes(&self) -> &[String];

    /// Image `index`, which is less than [`len`](Self::len), and its label; `None` if batches should skip the image.
    ///
    /// Several worker threads call it at the same time.
    ///
    /// # Errors
    /// Whatever prevents it, usually [`Error::Io`](crate::Error::Io) or [`Error::Format`](crate::Error::Format).
    fn image(&self, index: usize) -> Result<Option<(Image, usize)>>;

    /// How many unreadable images have been skipped so far; 0 if skipping is off, where such an image is an error.
    fn skipped(&self) -> usize {
        0
    }
}

macro_rules! delegate {
    ($pointer:ident) => {
        /// For a source that is chosen at run time.
        impl<S: ImageSource + ?Sized> ImageSource for $pointer<S> {
            fn len(&self) -> usize {
                (**self).len()
            }

            fn classes(&self) -> &[String] {
                (**self).classes()
            }

            fn image(&self, index: usize) -> Result<Option<(Image, usize)>> {
                (**self).image(index)
            }

            fn skipped(&self) -> usize {
                (**self).skipped()
            }
        }
    };
}

delegate!(Box);
delegate!(Arc);
