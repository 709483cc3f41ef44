//! Transforms to a fixed size, without randomness.

use super::{Image, SampleRng, Transform, functional::crop, functional::resize};
use crate::{Result, check, images::MAX_PIXELS};

/// Resizes an image so that its shorter edge has `size` pixels; the ratio stays. `torchvision.transforms.Resize(size)`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Resize {
    /// The length of the shorter edge, in pixels.
    pub size: usize,
}

impl Resize {
    /// With a shorter edge of `size` pixels.
    pub fn new(size: usize) -> Self {
        Self { size }
    }

    /// Height and width of the resized image, given those of the original.
    ///
    /// ```
    /// use tch_parallel::data::transforms::Resize;
    ///
    /// assert_eq!(Resize::new(256).output_size(480, 640), (256, 341));
    /// ```
    ///
    /// # Panics
    /// If the height or the width is 0, which no [`Image`] has.
    pub fn output_size(&self, height: usize, width: usize) -> (usize, usize) {
        // Rounded down, as in torchvision.
        let longer = self.size * height.max(width) / height.min(width);
        if height < width { (self.size, longer) } else { (longer, self.size) }
    }
}

impl Transform for Resize {
    fn apply(&self, image: Image, _rng: &mut SampleRng) -> Result<Image> {
        let (height, width) = self.output_size(image.height(), image.width());
        if (height, width) == (image.height(), image.width()) {
            return Ok(image);
        }
        // A 1×65,500 image fits into a kilobyte and would be resized to gigabytes.
        let fits = height.checked_mul(width).is_some_and(|pixels| pixels <= MAX_PIXELS);
        let what = format_args!("what Resize({}) makes of {image:?}", self.size);
        let expected = format_args!("at most {MAX_PIXELS} pixels; remove the image, or crop it");
        check(fits, what, format_args!("{width}×{height} pixels"), expected)?;
        resize(&image, height, width)
    }
}

/// Crops a square from the middle, padded with black if the image is smaller. `torchvision.transforms.CenterCrop(size)`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CenterCrop {
    /// Width and height of the square, in pixels.
    pub size: usize,
}

impl CenterCrop {
    /// A square of `size` pixels.
    pub fn new(size: usize) -> Self {
        Self { size }
    }

    /// The square's position along an edge of this length; negative if the edge is shorter.
    fn offset(&self, length: usize) -> isize {
        if length < self.size {
            return -((self.size - length) as isize / 2);
        }
        // Rounds half to even, as Python does.
        ((length - self.size) as f64 / 2.0).round_ties_even() as isize
    }
}

impl Transform for CenterCrop {
    fn apply(&self, image: Image, _rng: &mut SampleRng) -> Result<Image> {
        crop(&image, self.offset(image.height()), self.offset(image.width()), self.size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_narrow_image_that_would_take_gigabytes_is_refused() {
        let image = Image::new(1, 65_500, vec![0; 3 * 65_500]).unwrap();
        let error = Resize::new(224).apply(image, &mut SampleRng::new(0, 0, 0)).unwrap_err();
        let expected = "what Resize(224) makes of Image(1×65500) is 224×14672000 pixels, but must be at most \
                        178956970 pixels; remove the image, or crop it";
        assert_eq!(error.to_string(), expected);
    }

    #[test]
    fn an_odd_rest_is_halved_as_python_rounds_and_a_smaller_image_gets_a_black_edge() {
        let offsets = |size, lengths: &[usize]| -> Vec<_> {
            lengths.iter().map(|&length| CenterCrop::new(size).offset(length)).collect()
        };
        assert_eq!(offsets(224, &[224, 225, 226, 227, 228, 256]), [0, 0, 1, 2, 2, 16]);
        assert_eq!(offsets(4, &[1, 2, 3]), [-1, -1, 0]);
        let image = Image::new(1, 4, [5, 6, 7].repeat(4)).unwrap();
        let result = CenterCrop::new(2).apply(image, &mut SampleRng::new(0, 0, 0)).unwrap();
        assert_eq!(result.pixels(), [5, 6, 7, 0, 0, 0, 5, 6, 7, 0, 0, 0]);
    }
}
