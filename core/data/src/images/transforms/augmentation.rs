//! Data augmentation: random transforms that show the network another version of an image in every epoch.

use super::functional::{CropBox, crop, hflip, resized_crop};
use super::{Image, SampleRng, Transform};
use crate::{Result, check};
use tch_parallel_base::options;

/// How many random parts are tried, each of which may not fit.
const TRIES: usize = 10;

options! {
    /// Crops a part of random area and aspect ratio and resizes it to a square: the augmentation for ImageNet (Szegedy
    /// et al., "Going deeper with convolutions", 2014). `torchvision.transforms.RandomResizedCrop(size)`
    #[derive(Debug, Clone, Copy, PartialEq)]
    pub struct RandomResizedCrop {
        /// Width and height of the result, in pixels.
        pub size: usize,
        /// The range of the part's area, as a fraction of the image's.
        pub scale: (f64, f64) = (0.08, 1.0),
        /// The range of the part's ratio of width to height.
        pub ratio: (f64, f64) = (3.0 / 4.0, 4.0 / 3.0),
    }
    /// With torchvision's scale and ratio.
    pub fn new(size: usize);
}

impl RandomResizedCrop {
    /// Draws the part for an image of this size.
    ///
    /// Area and log ratio are uniform. If no part fits in ten tries, it is the largest centred one of an allowed ratio.
    pub fn get_params(&self, height: usize, width: usize, rng: &mut SampleRng) -> CropBox {
        let area = height as f64 * width as f64;
        for _ in 0..TRIES {
            let target_area = area * rng.uniform(self.scale.0, self.scale.1);
            let aspect_ratio = rng.uniform(self.ratio.0.ln(), self.ratio.1.ln()).exp();
            let w = round((target_area * aspect_ratio).sqrt());
            let h = round((target_area / aspect_ratio).sqrt());
            if 0 < w && w <= width && 0 < h && h <= height {
                let (top, left) = (rng.randint(0..height - h + 1), rng.randint(0..width - w + 1));
                return CropBox { top, left, height: h, width: w };
            }
        }
        let ratio = width as f64 / height as f64;
        let (h, w) = if ratio < self.ratio.0 {
            (round(width as f64 / self.ratio.0).min(height), width)
        } else if ratio > self.ratio.1 {
            (height, round(height as f64 * self.ratio.1).min(width))
        } else {
            (height, width)
        };
        CropBox { top: (height - h) / 2, left: (width - w) / 2, height: h, width: w }
    }
}

impl Transform for RandomResizedCrop {
    fn apply(&self, image: Image, rng: &mut SampleRng) -> Result<Image> {
        let part = self.get_params(image.height(), image.width(), rng);
        resized_crop(&image, part, self.size, self.size)
    }
}

/// Rounds half to even, as Python does. NaN and negative numbers become 0.
fn round(x: f64) -> usize {
    x.round_ties_even() as usize
}

/// Crops a square at a random position of the image padded with black: the augmentation for CIFAR-10, where an image of
/// 32 pixels moves by up to 4 in each direction. `torchvision.transforms.RandomCrop(size, padding=padding)`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RandomCrop {
    /// Width and height of the square, in pixels.
    pub size: usize,
    /// Black pixels on each of the four sides.
    pub padding: usize,
}

impl RandomCrop {
    /// A square of `size` pixels, from an image with `padding` black pixels on each side.
    pub fn new(size: usize, padding: usize) -> Self {
        Self { size, padding }
    }

    /// The square's position along one edge, relative to the unpadded image.
    fn offset(&self, edge: &str, length: usize, rng: &mut SampleRng) -> Result<isize> {
        let padded = length + 2 * self.padding;
        let expected = format_args!("at most {padded}, the {edge} of the image with its padding");
        check(padded >= self.size, "size of RandomCrop", self.size, expected)?;
        Ok(rng.randint(0..padded - self.size + 1) as isize - self.padding as isize)
    }
}

impl Transform for RandomCrop {
    fn apply(&self, image: Image, rng: &mut SampleRng) -> Result<Image> {
        let top = self.offset("height", image.height(), rng)?;
        let left = self.offset("width", image.width(), rng)?;
        crop(&image, top, left, self.size)
    }
}

options! {
    /// Mirrors the image horizontally with a probability. `torchvision.transforms.RandomHorizontalFlip(p)`
    #[derive(Debug, Clone, Copy, PartialEq)]
    pub struct RandomHorizontalFlip {
        /// The probability, from 0 to 1.
        pub p: f64 = 0.5,
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
    use crate::images::image::tests::grey;
    use std::collections::BTreeMap;

    fn draw(height: usize, width: usize, index: usize) -> CropBox {
        RandomResizedCrop::new(224).get_params(height, width, &mut SampleRng::new(0, 0, index))
    }

    #[test]
    fn the_part_lies_in_the_image_and_keeps_to_scale_and_ratio() {
        let (height, width) = (375, 500);
        let area = (height * width) as f64;
        let mut mean_share = 0.0;
        for index in 0..1000 {
            let part = draw(height, width, index);
            assert!(part.top + part.height <= height && part.left + part.width <= width);
            let share = (part.height * part.width) as f64 / area;
            // Edges are rounded to whole pixels: by half a pixel in at least 100.
            assert!((0.079..=1.0).contains(&share), "{part:?}");
            let ratio = part.width as f64 / part.height as f64;
            assert!((0.74..1.35).contains(&ratio), "{part:?}");
            mean_share += share / 1000.0;
        }
        // Below the midpoint, because large parts often do not fit: torchvision's mean over 40,000 draws for this size.
        // The standard deviation of a draw is 0.217, and the limit is five times that of a mean of 1,000.
        assert!((mean_share - 0.434).abs() < 0.035, "{mean_share}");
    }

    #[test]
    fn parts_touch_every_edge() {
        let parts: Vec<_> = (0..1000).map(|index| draw(8, 8, index)).collect();
        assert!(parts.iter().any(|part| part.top == 0 && part.height < 8));
        assert!(parts.iter().any(|part| part.left == 0 && part.width < 8));
        assert!(parts.iter().any(|part| part.top > 0 && part.top + part.height == 8));
        assert!(parts.iter().any(|part| part.left > 0 && part.left + part.width == 8));
    }

    #[test]
    fn an_image_too_narrow_for_any_part_gives_its_middle() {
        for index in 0..10 {
            let expected = CropBox { top: 49, left: 0, height: 1, width: 1 };
            assert_eq!(draw(100, 1, index), expected);
            let expected = CropBox { top: 0, left: 194, height: 9, width: 12 };
            assert_eq!(draw(9, 400, index), expected);
        }
    }

    #[test]
    fn a_single_pixel_fills_the_result() {
        let image = Image::new(1, 1, vec![1, 2, 3]).unwrap();
        let result = RandomResizedCrop::new(4).apply(image, &mut SampleRng::new(0, 0, 0)).unwrap();
        assert_eq!(result, Image::new(4, 4, [1, 2, 3].repeat(16)).unwrap());
    }

    /// How often each result occurred in 1000 draws.
    fn results(crop: RandomCrop, image: &Image) -> BTreeMap<Vec<u8>, usize> {
        let mut results = BTreeMap::new();
        for index in 0..1000 {
            let result = crop.apply(image.clone(), &mut SampleRng::new(0, 0, index)).unwrap();
            let pixels = result.pixels().iter().step_by(3).copied().collect();
            *results.entry(pixels).or_default() += 1;
        }
        results
    }

    #[test]
    fn the_padded_image_is_cut_at_every_place_equally_often() {
        // 1 2     . . . .
        // 3 4 is  . 1 2 .  and a square of two has nine places in it.
        //         . 3 4 .
        //         . . . .
        let results = results(RandomCrop::new(2, 1), &grey(2, 2, &[1, 2, 3, 4]));
        let expected = [
            [0u8, 0, 0, 1],
            [0, 0, 1, 2],
            [0, 0, 2, 0],
            [0, 1, 0, 3],
            [0, 3, 0, 0],
            [1, 2, 3, 4],
            [2, 0, 4, 0],
            [3, 4, 0, 0],
            [4, 0, 0, 0],
        ];
        assert_eq!(results.keys().cloned().collect::<Vec<_>>(), expected);
        // 111 each; five standard deviations are 50.
        assert!(results.values().all(|count| (61..161).contains(count)), "{results:?}");
    }

    #[test]
    fn without_padding_an_image_of_that_size_stays_as_it_is() {
        let results = results(RandomCrop::new(2, 0), &grey(2, 2, &[1, 2, 3, 4]));
        assert_eq!(results.into_keys().collect::<Vec<_>>(), [[1, 2, 3, 4]]);
    }

    #[test]
    fn an_image_smaller_than_the_square_is_refused() {
        let image = grey(8, 2, &[0; 16]);
        let error = RandomCrop::new(8, 2).apply(image, &mut SampleRng::new(0, 0, 0)).unwrap_err();
        let expected = "size of RandomCrop is 8, but must be at most 6, the height of the image with its padding";
        assert_eq!(error.to_string(), expected);
    }

    /// How many of 1000 images are flipped.
    fn flipped(flip: RandomHorizontalFlip) -> usize {
        let image = Image::new(2, 1, vec![1, 1, 1, 2, 2, 2]).unwrap();
        let apply = |index| flip.apply(image.clone(), &mut SampleRng::new(0, 0, index)).unwrap();
        (0..1000).filter(|&index| apply(index) != image).count()
    }

    #[test]
    fn half_of_the_images_are_flipped_and_at_the_ends_of_the_probability_none_or_all() {
        let half = flipped(RandomHorizontalFlip::default());
        // Five standard deviations of 16.
        assert!((420..580).contains(&half), "{half}");
        assert_eq!([0.0, 1.0].map(|p| flipped(RandomHorizontalFlip { p })), [0, 1000]);
    }
}
