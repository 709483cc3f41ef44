//! Where images come from.

use std::sync::Arc;

use super::Image;
use crate::Result;

/// Images numbered from 0, each with the number of its class: what torchvision's data sets are
/// before any transform.
///
/// An [`ImageDataset`](super::ImageDataset) makes batches of them.
pub trait ImageSource: Send + Sync {
    /// How many images there are.
    fn len(&self) -> usize;

    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The names of the classes; a label is an index into them.
    fn classes(&self) -> &[String];

    /// Image number `index`, which is less than [`len`](Self::len), and its label; None for an image
    /// that batches are to be made without.
    ///
    /// Several worker threads call it at the same time.
    ///
    /// # Errors
    /// What keeps the source from giving the image, as a rule [`Error::Io`](crate::Error::Io) or
    /// [`Error::Format`](crate::Error::Format).
    fn image(&self, index: usize) -> Result<Option<(Image, usize)>>;

    /// How many images have turned out to be unreadable so far and were left out; where that is not
    /// asked for, such an image is an error and this stays 0.
    fn skipped(&self) -> usize {
        0
    }
}

macro_rules! delegate {
    ($pointer:ident) => {
        /// For programs that choose their data at run time.
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
