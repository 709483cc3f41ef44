//! Batches of transformed images.

use super::{Image, ImageSource, SampleRng, transforms::Normalize, transforms::Transform};
use crate::{Dataset, Error, Result, batch_memory::BatchMemory, check};
use rayon::prelude::*;
use tch::Tensor;

/// The images of a source, transformed and combined into batches.
///
/// A batch is `(images, labels)`: 32-bit floats `[batch, 3, height, width]` and 64-bit integers `[batch]`. After the
/// transforms, all images must have the same size. The result equals torchvision's `Compose([*transforms, ToTensor(),
/// Normalize(mean, std)])`. If the source skips images, the batch is smaller; a batch without any image is an error.
///
/// Random transforms use a [`SampleRng`] of `(seed, epoch, index)`. A loader's worker threads share
/// the images of a batch, so the first batch is ready sooner than if one thread made it.
///
/// ```
/// use tch_parallel::data::transforms::{Normalize, RandomCrop, RandomHorizontalFlip};
/// use tch_parallel::data::{DataLoader, ImageDataset, Mnist, RandomSampler, Split};
/// use tch_parallel::data::{MNIST_CLASSES, MnistImages};
///
/// let digits = MnistImages::new(Mnist::embedded(Split::Train)?, MNIST_CLASSES);
/// let seed = 42;
/// let dataset = ImageDataset::new(
///     digits,
///     vec![Box::new(RandomCrop::new(32, 4)), Box::new(RandomHorizontalFlip::default())],
///     Normalize::MNIST,
///     seed,
/// )?;
///
/// let loader = DataLoader::new(dataset, RandomSampler::new(seed), 128)?;
/// for batch in loader.epoch(0)?.take(1) {
///     let (images, labels) = batch?;
///     assert_eq!(images.size(), [128, 3, 32, 32]);
///     assert_eq!(labels.size(), [128]);
/// }
/// # Ok::<(), tch_parallel::Error>(())
/// ```
#[derive(Debug)]
pub struct ImageDataset<S> {
    source: S,
    transforms: Vec<Box<dyn Transform>>,
    /// The normalised value of each byte, per channel.
    normalized: [[f32; 256]; 3],
    /// Together with epoch and index, it determines the random transforms.
    seed: u64,
    memory: BatchMemory,
}

impl<S: ImageSource> ImageDataset<S> {
    /// Applies `transforms` in order, then `normalize`. With one `seed` on all ranks, a sample is the same on each.
    ///
    /// # Errors
    /// [`Error::Argument`] if `normalize` would divide by 0, or contains infinity or NaN.
    pub fn new(
        source: S,
        transforms: Vec<Box<dyn Transform>>,
        normalize: Normalize,
        seed: u64,
    ) -> Result<Self> {
        let (normalized, memory) = (normalize.table()?, BatchMemory::default());
        Ok(Self { source, transforms, normalized, seed, memory })
    }

    /// The source of the images.
    pub fn source(&self) -> &S {
        &self.source
    }

    /// Image `index` in epoch `epoch`, before it becomes floats, and its label; `None` if the source skips it.
    ///
    /// # Errors
    /// Those of the source, [`Error::Argument`] for an index that does not exist, and [`Error::Other`] with the index for
    /// an image that a transform refuses.
    pub fn image(&self, index: usize, epoch: u64) -> Result<Option<(Image, usize)>> {
        let expected = format_args!("less than the number of images, {}", self.source.len());
        check(index < self.source.len(), "index", index, expected)?;
        let Some((mut image, label)) = self.source.image(index)? else { return Ok(None) };
        let mut rng = SampleRng::new(self.seed, epoch, index);
        for transform in &self.transforms {
            let applied = transform.apply(image, &mut rng);
            image = applied.map_err(|error| Error::other(format!("image {index}: {error}")))?;
        }
        Ok(Some((image, label)))
    }

    /// `[images, 3, height, width]`: each colour is a plane of its own.
    fn to_tensor(&self, images: &[Image], indices: &[usize]) -> Result<Tensor> {
        let (width, height) =
            images.first().map_or((0, 0), |first| (first.width(), first.height()));
        for (image, index) in images.iter().zip(indices) {
            if (image.width(), image.height()) != (width, height) {
                let found = format!("{}×{}", image.width(), image.height());
                let advice = "end the transforms with one that gives all images the same size";
                let expected =
                    format!("{width}×{height}, as that of image {}: {advice}", indices[0]);
                return Err(Error::argument(format!("size of image {index}"), found, expected));
            }
        }
        let size = [images.len(), 3, height, width].map(|dim| dim as i64);
        self.memory.tensor(&size, |elements| {
            // Each image has its own part of the tensor, so threads need no lock.
            let parts = elements.chunks_exact_mut(3 * height * width).zip(images).collect();
            map(parts, |(part, image)| normalize(image, &self.normalized, part));
        })
    }
}

/// Writes the image's red, green and blue planes.
fn normalize(image: &Image, normalized: &[[f32; 256]; 3], planes: &mut [f32]) {
    let (red, rest) = planes.split_at_mut(planes.len() / 3);
    let (green, blue) = rest.split_at_mut(red.len());
    let targets = red.iter_mut().zip(green).zip(blue);
    for (pixel, ((red, green), blue)) in image.pixels().chunks_exact(3).zip(targets) {
        *red = normalized[0][usize::from(pixel[0])];
        *green = normalized[1][usize::from(pixel[1])];
        *blue = normalized[2][usize::from(pixel[2])];
    }
}

impl<S: ImageSource> Dataset for ImageDataset<S> {
    type Batch = (Tensor, Tensor);

    fn len(&self) -> usize {
        self.source.len()
    }

    fn batch(&self, indices: &[usize], epoch: u64) -> Result<(Tensor, Tensor)> {
        let made = map(indices.to_vec(), |index| self.image(index, epoch));
        let kept = indices.iter().zip(made).filter_map(|(&index, made)| {
            Some(made.transpose()?.map(|(image, label)| (index, image, label as i64)))
        });
        let (kept, images, labels): (Vec<_>, Vec<_>, Vec<_>) = kept.collect::<Result<_>>()?;
        let found = format_args!("of damaged images only, {indices:?}");
        let expected = "one with at least one good image: repair or remove the files, or make \
                       larger batches";
        check(!images.is_empty() || indices.is_empty(), "a batch", found, expected)?;
        Ok((self.to_tensor(&images, &kept)?, Tensor::f_from_slice(&labels)?))
    }
}

/// Spreads the items over the worker threads of the loader that calls this. Any other thread, as of a loop without
/// workers, does all the work itself: rayon's global pool has a thread per core, too many if ranks share the machine.
fn map<I: Send, T: Send>(items: Vec<I>, f: impl Fn(I) -> T + Send + Sync) -> Vec<T> {
    match rayon::current_thread_index() {
        Some(_) => items.into_par_iter().map(f).collect(),
        None => items.into_iter().map(f).collect(),
    }
}

#[cfg(test)]
mod tests;
