//! A random part of an image and of a black edge around it.

use super::functional::crop;
use super::{Image, SampleRng, Transform};
use crate::{Error, Result};

/// Cuts a square at a random place out of an image that was padded with black: the augmentation of
/// CIFAR-10, where an image of 32 pixels moves by up to 4 in each direction.
/// `torchvision.transforms.RandomCrop(size, padding=padding)`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RandomCrop {
    /// Width and height of the square, in pixels.
    pub size: usize,
    /// Black pixels on each of the four sides.
    pub padding: usize,
}

impl RandomCrop {
    /// A square of `size` pixels, out of an image with `padding` black pixels on each side.
    pub fn new(size: usize, padding: usize) -> Self {
        Self { size, padding }
    }

    /// Where along one edge the square begins, counted from the image's own edge.
    fn offset(&self, edge: &str, length: usize, rng: &mut SampleRng) -> Result<isize> {
        let padded = length + 2 * self.padding;
        if padded < self.size {
            return Err(Error::Argument {
                what: "size of RandomCrop".into(),
                found: self.size.to_string(),
                expected: format!("at most {padded}, the {edge} of the image with its padding"),
            });
        }
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// Pixels whose three bytes are equal.
    fn grey(width: usize, height: usize, pixels: &[u8]) -> Image {
        Image::new(width, height, pixels.iter().flat_map(|&pixel| [pixel; 3]).collect()).unwrap()
    }

    /// How often each result came, of 1000.
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
        let by_hand = [
            [0, 0, 0, 1],
            [0, 0, 1, 2],
            [0, 0, 2, 0],
            [0, 1, 0, 3],
            [1, 2, 3, 4],
            [2, 0, 4, 0],
            [0, 3, 0, 0],
            [3, 4, 0, 0],
            [4, 0, 0, 0],
        ];
        let mut expected = by_hand.map(Vec::from);
        expected.sort();
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
        assert_eq!(
            error.to_string(),
            "size of RandomCrop is 8, but must be at most 6, the height of the image with its \
             padding"
        );
    }
}
