//! The operations of the transforms on PIL images, as in `torchvision.transforms.functional`.

use fast_image_resize as fir;
use fir::images::{CroppedImage, ImageRef};
use fir::{FilterType, PixelType, ResizeAlg, ResizeOptions, Resizer};

use crate::data::images::Image;
use crate::data::images::image::CHANNELS;
use crate::{Error, Result};

/// A rectangle of an image, in pixels. torchvision calls the fields i, j, h and w.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CropBox {
    /// Rows above it.
    pub top: usize,
    /// Columns on its left.
    pub left: usize,
    /// Its rows.
    pub height: usize,
    /// Its columns.
    pub width: usize,
}

/// The image with each row reversed. `functional.hflip`
pub fn hflip(mut image: Image) -> Image {
    for row in image.rows_mut() {
        let (pixels, _) = row.as_chunks_mut::<CHANNELS>();
        pixels.reverse();
    }
    image
}

/// A square of `size` pixels a side, `top` rows and `left` columns from the image's corner. What lies
/// outside of the image is black. `functional.crop`
///
/// # Errors
/// [`Error::Argument`] for a square without pixels.
pub fn crop(image: &Image, top: isize, left: isize, size: usize) -> Result<Image> {
    let mut pixels = vec![0; size * size * CHANNELS];
    // The columns of both; `left` and `top` are negative where the square begins outside.
    let columns = overlap(left, size, image.width());
    let rows = overlap(top, size, image.height());
    for row in rows.clone() {
        let from = &image.pixels()[(row * image.width() + columns.start) * CHANNELS..];
        let bytes = columns.len() * CHANNELS;
        let target_row = row.wrapping_add_signed(-top);
        let target_column = columns.start.wrapping_add_signed(-left);
        pixels[(target_row * size + target_column) * CHANNELS..][..bytes]
            .copy_from_slice(&from[..bytes]);
    }
    Image::new(size, size, pixels)
}

/// The part of `0..len` that lies in the `size` numbers from `start`.
fn overlap(start: isize, size: usize, len: usize) -> std::ops::Range<usize> {
    let first = start.max(0).unsigned_abs().min(len);
    let end = start.saturating_add_unsigned(size).max(0).unsigned_abs().min(len);
    first..end.max(first)
}

/// The image at another size, in pixels: bilinear, and where it shrinks every pixel counts
/// (antialiasing). `functional.resize`
///
/// # Errors
/// As [`resized_crop`].
pub fn resize(image: &Image, height: usize, width: usize) -> Result<Image> {
    let whole = CropBox { top: 0, left: 0, height: image.height(), width: image.width() };
    resized_crop(image, whole, height, width)
}

/// A part of the image at another size. The pixels around the part do not show in it.
///
/// It is Pillow's algorithm: for each direction a weighted mean, rounded to a byte.
/// `functional.resized_crop`
///
/// # Errors
/// [`Error::Argument`] for a part that is not inside of the image, and for one without pixels.
pub fn resized_crop(image: &Image, part: CropBox, height: usize, width: usize) -> Result<Image> {
    let CropBox { top, left, height: rows, width: columns } = part;
    let options = ResizeOptions::new()
        .resize_alg(ResizeAlg::Convolution(FilterType::Bilinear))
        .use_alpha(false);
    let resize = || -> std::result::Result<_, Box<dyn std::error::Error>> {
        let size = |size: usize| u32::try_from(size);
        let (source_width, source_height) = (size(image.width())?, size(image.height())?);
        let source = ImageRef::new(source_width, source_height, image.pixels(), PixelType::U8x3)?;
        // Not `ResizeOptions::crop`, which lets the pixels around the part shine in.
        let source =
            CroppedImage::new(&source, size(left)?, size(top)?, size(columns)?, size(rows)?)?;
        let mut target = fir::images::Image::new(size(width)?, size(height)?, PixelType::U8x3);
        Resizer::new().resize(&source, &mut target, &options)?;
        Ok(target.into_vec())
    };
    let pixels = resize().map_err(|error| Error::Argument {
        what: "part of an image to resize".into(),
        found: format!("{part:?} to {height}×{width}"),
        expected: format!("inside of {image:?} ({error})"),
    })?;
    Image::new(width, height, pixels)
}

#[cfg(test)]
mod tests;
