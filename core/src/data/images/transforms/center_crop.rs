//! The middle of an image.

use super::functional::crop;
use super::{Image, SampleRng, Transform};
use crate::Result;

/// Cuts a square out of the middle of an image. A smaller image gets a black edge.
/// `torchvision.transforms.CenterCrop(size)`
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

    /// Where along an edge of this length the square begins; negative where the edge is shorter.
    fn offset(&self, length: usize) -> isize {
        if length < self.size {
            return -((self.size - length) as isize / 2);
        }
        // As Python rounds: a half goes to the even number.
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
    fn an_odd_rest_is_halved_as_python_rounds() {
        let crop = CenterCrop::new(224);
        let offsets = [224, 225, 226, 227, 228, 256].map(|length| crop.offset(length));
        assert_eq!(offsets, [0, 0, 1, 2, 2, 16]);
    }

    #[test]
    fn a_smaller_image_gets_a_black_edge() {
        let image = Image::new(1, 4, [5, 6, 7].repeat(4)).unwrap();
        let result = CenterCrop::new(2).apply(image, &mut SampleRng::new(0, 0, 0)).unwrap();
        assert_eq!(result.pixels(), [5, 6, 7, 0, 0, 0, 5, 6, 7, 0, 0, 0]);
        let offsets = [1, 2, 3].map(|length| CenterCrop::new(4).offset(length));
        assert_eq!(offsets, [-1, -1, 0]);
    }
}
