//! Left and right exchanged, or not.

use super::functional::hflip;
use super::{Image, SampleRng, Transform};
use crate::Result;

/// Exchanges left and right with a probability. `torchvision.transforms.RandomHorizontalFlip(p)`
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RandomHorizontalFlip {
    /// The probability, from 0 to 1.
    pub p: f64,
}

impl Default for RandomHorizontalFlip {
    fn default() -> Self {
        Self { p: 0.5 }
    }
}

impl Transform for RandomHorizontalFlip {
    fn apply(&self, image: Image, rng: &mut SampleRng) -> Result<Image> {
        Ok(if rng.bernoulli(self.p) { hflip(image) } else { image })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of 1000 images come out flipped.
    fn flipped(flip: RandomHorizontalFlip) -> usize {
        let image = Image::new(2, 1, vec![1, 1, 1, 2, 2, 2]).unwrap();
        let apply = |index| flip.apply(image.clone(), &mut SampleRng::new(0, 0, index)).unwrap();
        (0..1000).filter(|&index| apply(index) != image).count()
    }

    #[test]
    fn half_of_the_images_are_flipped() {
        let flipped = flipped(RandomHorizontalFlip::default());
        // Five standard deviations, 16 each.
        assert!((420..580).contains(&flipped), "{flipped}");
    }

    #[test]
    fn the_ends_of_the_probability_mean_never_and_always() {
        assert_eq!(flipped(RandomHorizontalFlip { p: 0.0 }), 0);
        assert_eq!(flipped(RandomHorizontalFlip { p: 1.0 }), 1000);
    }
}
