//! An image in memory.

use crate::{Result, check};
use std::fmt;

/// The bytes of a pixel: red, green and blue.
pub(super) const CHANNELS: usize = 3;

/// 8-bit RGB pixels, row by row from the top left: what `PIL.Image.convert("RGB")` returns.
///
/// Pixels stay bytes until a batch is made of them: a quarter of the memory of floats, and the fastest to resize.
///
/// ```
/// use tch_parallel::data::Image;
///
/// let image = Image::new(2, 1, vec![255, 0, 0, 0, 0, 255])?; // a red and a blue pixel
/// assert_eq!((image.width(), image.height()), (2, 1));
/// assert_eq!(image.pixels()[3..], [0, 0, 255]);
/// # Ok::<(), tch_parallel::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Image {
    width: usize,
    height: usize,
    /// `height · width · 3` bytes.
    pixels: Vec<u8>,
}

impl Image {
    /// An image with `height` rows of `width` pixels, of three bytes each.
    ///
    /// # Errors
    /// [`Error::Argument`](crate::Error::Argument) for an image without pixels, and if there are not `height · width · 3` bytes.
    pub fn new(width: usize, height: usize, pixels: Vec<u8>) -> Result<Self> {
        let (found, expected) = (format!("{width}×{height}"), "at least one pixel wide and high");
        check(width > 0 && height > 0, "size of an image", found, expected)?;
        let bytes = width.checked_mul(height).and_then(|pixels| pixels.checked_mul(CHANNELS));
        let what = "number of bytes of an image";
        let expected =
            format_args!("{width} · {height} · {CHANNELS}, its width, height and channels");
        check(bytes == Some(pixels.len()), what, pixels.len(), expected)?;
        Ok(Self { width, height, pixels })
    }

    /// The pixels per row.
    pub fn width(&self) -> usize {
        self.width
    }

    /// The number of rows.
    pub fn height(&self) -> usize {
        self.height
    }

    /// The bytes `[height, width, 3]`.
    pub fn pixels(&self) -> &[u8] {
        &self.pixels
    }

    /// The rows from the top.
    pub fn rows(&self) -> impl Iterator<Item = &[u8]> {
        self.pixels.chunks_exact(self.width * CHANNELS)
    }

    /// The rows from the top, mutable.
    pub fn rows_mut(&mut self) -> impl Iterator<Item = &mut [u8]> {
        self.pixels.chunks_exact_mut(self.width * CHANNELS)
    }
}

/// Only the size, because there may be a hundred thousand numbers.
impl fmt::Debug for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Image({}×{})", self.width, self.height)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Pixels whose three bytes are equal.
    pub(crate) fn grey(width: usize, height: usize, pixels: &[u8]) -> Image {
        Image::new(width, height, pixels.iter().flat_map(|&pixel| [pixel; 3]).collect()).unwrap()
    }

    #[test]
    fn an_image_has_three_bytes_a_pixel() {
        let image = Image::new(2, 1, vec![1, 2, 3, 4, 5, 6]).unwrap();
        assert_eq!((image.width(), image.height()), (2, 1));
        assert_eq!(image.rows().collect::<Vec<_>>(), [[1, 2, 3, 4, 5, 6]]);
        assert_eq!(format!("{image:?}"), "Image(2×1)");
        let expected = "number of bytes of an image is 5, but must be 2 · 1 · 3, its width, height and channels";
        assert_eq!(Image::new(2, 1, vec![0; 5]).unwrap_err().to_string(), expected);
    }

    #[test]
    fn an_image_without_pixels_is_refused() {
        for (width, height) in [(0, 1), (1, 0)] {
            let error = Image::new(width, height, Vec::new()).unwrap_err().to_string();
            assert!(error.contains("at least one pixel wide and high"), "{error}");
        }
    }
}
