//! The transforms' operations on PIL images, as in `torchvision.transforms.functional`.

use crate::{Error, Result, images::Image, images::image::CHANNELS};
use fast_image_resize::images::{TypedCroppedImage, TypedImage, TypedImageRef};
use fast_image_resize::{FilterType, ResizeAlg, ResizeOptions, Resizer, pixels::U8x3};

/// A rectangle of an image, in pixels. torchvision calls the fields i, j, h and w.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CropBox {
    /// The rows above it.
    pub top: usize,
    /// The columns to its left.
    pub left: usize,
    /// The number of its rows.
    pub height: usize,
    /// The number of its columns.
    pub width: usize,
}

/// The image with each row reversed. `functional.hflip`
///
/// ```
/// use tch_parallel::data::{Image, transforms::functional::hflip};
///
/// let image = Image::new(2, 2, (1..=12).collect())?;
/// assert_eq!(hflip(image).pixels(), [4, 5, 6, 1, 2, 3, 10, 11, 12, 7, 8, 9]);
/// # Ok::<(), tch_parallel::Error>(())
/// ```
pub fn hflip(mut image: Image) -> Image {
    image.rows_mut().for_each(|row| row.as_chunks_mut::<CHANNELS>().0.reverse());
    image
}

/// A square of `size` pixels a side, from row `top` and column `left`; black outside the image. `functional.crop`
///
/// # Errors
/// [`Error::Argument`] for a square without pixels.
pub fn crop(image: &Image, top: isize, left: isize, size: usize) -> Result<Image> {
    let mut pixels = vec![0; size * size * CHANNELS];
    // The columns that both share; `left` and `top` are negative if the square starts outside.
    let columns = overlap(left, size, image.width());
    for row in overlap(top, size, image.height()) {
        let from = &image.pixels()[(row * image.width() + columns.start) * CHANNELS..];
        let bytes = columns.len() * CHANNELS;
        let target_row = row.wrapping_add_signed(-top);
        let target_column = columns.start.wrapping_add_signed(-left);
        pixels[(target_row * size + target_column) * CHANNELS..][..bytes]
            .copy_from_slice(&from[..bytes]);
    }
    Image::new(size, size, pixels)
}

/// The part of `0..len` in the `size` numbers from `start`.
fn overlap(start: isize, size: usize, len: usize) -> std::ops::Range<usize> {
    let first = start.max(0).unsigned_abs().min(len);
    let end = start.saturating_add_unsigned(size).max(0).unsigned_abs().min(len);
    first..end.max(first)
}

/// Resizes the image to this size in pixels: bilinear, with antialiasing when it shrinks. `functional.resize`
pub fn resize(image: &Image, height: usize, width: usize) -> Result<Image> {
    let whole = CropBox { top: 0, left: 0, height: image.height(), width: image.width() };
    resized_crop(image, whole, height, width)
}

/// Resizes a part of the image. Pixels outside the part have no influence.
///
/// The algorithm is Pillow's: in each direction a weighted mean, rounded to a byte. `functional.resized_crop`
///
/// # Errors
/// [`Error::Argument`] for a part that is not inside the image, and for one without pixels.
pub fn resized_crop(image: &Image, part: CropBox, height: usize, width: usize) -> Result<Image> {
    let CropBox { top, left, height: rows, width: columns } = part;
    let options = ResizeOptions::new()
        .resize_alg(ResizeAlg::Convolution(FilterType::Bilinear))
        .use_alpha(false);
    let resize = || -> std::result::Result<_, Box<dyn std::error::Error>> {
        let size = |size: usize| u32::try_from(size);
        let (image_width, image_height) = (size(image.width())?, size(image.height())?);
        // Typed, because images of any type would compile the code for all types of pixels.
        let source = TypedImageRef::<U8x3>::from_buffer(image_width, image_height, image.pixels())?;
        // Not `ResizeOptions::crop`, which mixes in pixels around the part.
        let (left, top) = (size(left)?, size(top)?);
        let source = TypedCroppedImage::from_ref(&source, left, top, size(columns)?, size(rows)?)?;
        let mut pixels = vec![0; width * height * CHANNELS];
        let mut target = TypedImage::<U8x3>::from_buffer(size(width)?, size(height)?, &mut pixels)?;
        Resizer::new().resize_typed(&source, &mut target, &options)?;
        Ok(pixels)
    };
    let pixels = resize().map_err(|error| {
        let found = format!("{part:?} to {height}×{width}");
        let expected = format!("inside of {image:?} ({error})");
        Error::argument("part of an image to resize", found, expected)
    })?;
    Image::new(width, height, pixels)
}

#[cfg(test)]
mod tests;
