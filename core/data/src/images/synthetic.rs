//! Noise instead of images.

use super::{Image, ImageSource, SampleRng};
use crate::{Result, check};
use tch_parallel_base::options;

options! {
    /// Options of [`SyntheticImages`]: by default as ImageNet's training images, like PyTorch's example with `--dummy`.
    #[derive(Debug, Clone, Copy)]
    pub struct SyntheticImagesOptions {
        /// The number of images.
        pub len: usize = 1_281_167,
        /// Width and height, in pixels.
        pub size: usize = 224,
        /// The number of classes.
        pub num_classes: usize = 1000,
        /// A different seed gives different images.
        pub seed: u64 = 0,
    }
}

/// Random pixels with random labels, to measure training speed without a data set. There is nothing to learn.
///
/// Each image is made on demand, by a generator seeded with its index: it takes no memory and is always the same.
///
/// ```
/// use tch_parallel::data::{ImageSource, SyntheticImages, SyntheticImagesOptions};
///
/// let images = SyntheticImages::new(SyntheticImagesOptions { len: 100, ..Default::default() })?;
/// assert_eq!((images.len(), images.classes().len()), (100, 1000));
/// let Some((image, label)) = images.image(7)? else { unreachable!("none is left out") };
/// assert_eq!((image.width(), image.height()), (224, 224));
/// assert!(label < 1000);
/// # Ok::<(), tch_parallel::Error>(())
/// ```
#[derive(Debug)]
pub struct SyntheticImages {
    options: SyntheticImagesOptions,
    classes: Vec<String>,
}

impl SyntheticImages {
    /// Images with the properties in `options`.
    ///
    /// # Errors
    /// [`Error::Argument`](crate::Error::Argument) for images without pixels, or no classes.
    pub fn new(options: SyntheticImagesOptions) -> Result<Self> {
        for (what, value) in [("size", options.size), ("num_classes", options.num_classes)] {
            check(value > 0, format_args!("{what} of synthetic images"), "0", "at least 1")?;
        }
        // A name that cannot be mistaken for a class of real images.
        let classes = (0..options.num_classes).map(|class| format!("synthetic-{class}")).collect();
        Ok(Self { options, classes })
    }
}

impl ImageSource for SyntheticImages {
    fn len(&self) -> usize {
        self.options.len
    }

    fn classes(&self) -> &[String] {
        &self.classes
    }

    fn image(&self, index: usize) -> Result<Option<(Image, usize)>> {
        let SyntheticImagesOptions { size, num_classes, seed, .. } = self.options;
        let mut rng = SampleRng::new(seed, 0, index);
        let label = rng.randint(0..num_classes);
        let mut pixels = vec![0; size * size * 3];
        rng.fill(&mut pixels);
        Ok(Some((Image::new(size, size, pixels)?, label)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noise() -> SyntheticImages {
        let options = SyntheticImagesOptions { size: 16, num_classes: 10, ..Default::default() };
        SyntheticImages::new(options).unwrap()
    }

    #[test]
    fn an_index_always_has_the_same_image_and_another_index_another() {
        assert_eq!(noise().len(), 1_281_167);
        let image = |index| noise().image(index).unwrap().unwrap();
        assert_eq!(image(3), image(3));
        assert_ne!(image(3).0, image(4).0);
    }

    #[test]
    fn labels_are_of_all_classes_and_pixels_of_all_levels() {
        let images: Vec<_> = (0..100).map(|index| noise().image(index).unwrap().unwrap()).collect();
        for class in 0..10 {
            assert!(images.iter().any(|(_, label)| *label == class), "no image of class {class}");
        }
        for level in 0..=255 {
            assert!(images.iter().any(|(image, _)| image.pixels().contains(&level)), "no {level}");
        }
        assert_eq!(noise().classes()[9], "synthetic-9");
    }

    #[test]
    fn images_without_pixels_are_refused() {
        let options = SyntheticImagesOptions { size: 0, ..Default::default() };
        let expected = "size of synthetic images is 0, but must be at least 1";
        assert_eq!(SyntheticImages::new(options).unwrap_err().to_string(), expected);
    }
}
