//! MNIST and Fashion-MNIST in the shape of CIFAR-10.

use super::{Image, ImageSource};
use crate::{Mnist, Result, mnist::SIDE as INNER_SIDE};

/// The classes of MNIST.
pub const MNIST_CLASSES: [&str; 10] = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"];
/// The classes of Fashion-MNIST, as torchvision names them.
pub const FASHION_MNIST_CLASSES: [&str; 10] = [
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
];

/// The black pixels on each side that extend 28 to 32.
const PADDING: usize = 2;
const SIDE: usize = INNER_SIDE + 2 * PADDING;

/// The images of [`Mnist`] at CIFAR-10's size, 32×32: two black pixels on each side, and the grey level in all three
/// channels. A model for CIFAR-10 can so be trained on real images without a download.
#[derive(Debug)]
pub struct MnistImages {
    mnist: Mnist,
    classes: Vec<String>,
}

impl MnistImages {
    /// The images of `mnist`. `classes` is [`MNIST_CLASSES`] or [`FASHION_MNIST_CLASSES`]: the files do not say which.
    pub fn new(mnist: Mnist, classes: [&str; 10]) -> Self {
        Self { mnist, classes: classes.map(str::to_owned).into() }
    }
}

impl ImageSource for MnistImages {
    fn len(&self) -> usize {
        self.mnist.labels().len()
    }

    fn classes(&self) -> &[String] {
        &self.classes
    }

    fn image(&self, index: usize) -> Result<Option<(Image, usize)>> {
        let mut image = Image::new(SIDE, SIDE, vec![0; SIDE * SIDE * 3])?;
        let inner = image.rows_mut().skip(PADDING);
        for (row, levels) in inner.zip(self.mnist.pixels(index).chunks_exact(INNER_SIDE)) {
            let (pixels, _) = row.as_chunks_mut::<3>();
            for (pixel, &level) in pixels[PADDING..].iter_mut().zip(levels) {
                *pixel = [level; 3];
            }
        }
        Ok(Some((image, usize::from(self.mnist.labels()[index]))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Split;

    #[test]
    fn a_digit_gets_an_edge_of_two_black_pixels_and_three_equal_channels() {
        let mnist = Mnist::embedded(Split::Test).unwrap();
        let images = MnistImages::new(mnist.clone(), MNIST_CLASSES);
        assert_eq!(images.len(), 2000);
        let (image, label) = images.image(7).unwrap().unwrap();
        assert_eq!((image.width(), image.height()), (32, 32));
        assert_eq!(images.classes()[label], mnist.labels()[7].to_string());

        let at = |row: usize, column: usize| &image.pixels()[(row * 32 + column) * 3..][..3];
        for row in 0..32 {
            for column in 0..32 {
                let inside = (2..30).contains(&row) && (2..30).contains(&column);
                let level = if inside { mnist.pixels(7)[(row - 2) * 28 + column - 2] } else { 0 };
                assert_eq!(at(row, column), [level; 3], "row {row}, column {column}");
            }
        }
        assert!(mnist.pixels(7).iter().any(|&level| level > 200), "the digit is missing");
    }
}
