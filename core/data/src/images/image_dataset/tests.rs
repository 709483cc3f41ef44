use super::*;
use crate::transforms::{CenterCrop, RandomCrop, RandomHorizontalFlip, RandomResizedCrop};
use crate::{DataLoader, DataLoaderOptions, SequentialSampler};
use crate::{SyntheticImages, SyntheticImagesOptions};
use std::{collections::HashSet, sync::Condvar, sync::Mutex, thread, time::Duration};
use tch::Kind;

const UNCHANGED: Normalize = Normalize { mean: [0.0; 3], std: [1.0; 3] };

fn noise(len: usize) -> SyntheticImages {
    let options = SyntheticImagesOptions { len, size: 24, ..Default::default() };
    SyntheticImages::new(options).unwrap()
}

/// Images that a function makes from their indices.
struct Made<F> {
    len: usize,
    image: F,
}

impl<F: Fn(usize) -> Result<Option<(Image, usize)>> + Send + Sync> ImageSource for Made<F> {
    fn len(&self) -> usize {
        self.len
    }

    fn classes(&self) -> &[String] {
        &[]
    }

    fn image(&self, index: usize) -> Result<Option<(Image, usize)>> {
        (self.image)(index)
    }
}

/// The augmented images of an epoch, in the order of their indices.
fn epoch(seed: u64, epoch: u64, batch_size: usize, num_workers: usize) -> Tensor {
    let transforms: Vec<Box<dyn Transform>> = vec![
        Box::new(RandomResizedCrop::new(16)),
        Box::new(RandomHorizontalFlip::default()),
        Box::new(RandomCrop::new(16, 2)),
    ];
    let augmented = ImageDataset::new(noise(30), transforms, Normalize::IMAGENET, seed).unwrap();
    let options = DataLoaderOptions { batch_size, num_workers, ..Default::default() };
    let loader = DataLoader::with_options(augmented, SequentialSampler, options).unwrap();
    let images: Vec<_> = loader.epoch(epoch).unwrap().map(|batch| batch.unwrap().0).collect();
    Tensor::cat(&images, 0)
}

#[test]
fn augmentation_does_not_depend_on_workers_or_batches() {
    let alone = epoch(5, 3, 30, 0);
    assert_eq!(alone.size(), [30, 3, 16, 16]);
    for (batch_size, num_workers) in [(7, 0), (7, 1), (30, 4), (4, 4)] {
        let shared = epoch(5, 3, batch_size, num_workers);
        assert_eq!(shared, alone, "batches of {batch_size}, {num_workers} workers");
    }
}

#[test]
fn every_epoch_and_every_seed_augments_in_another_way_and_again_in_the_same() {
    let augmented = epoch(5, 1, 30, 0);
    assert_ne!(augmented, epoch(5, 0, 30, 0));
    assert_ne!(augmented, epoch(6, 1, 30, 0));
    assert_eq!(augmented, epoch(5, 1, 30, 0));
}

#[test]
fn a_batch_holds_normalised_planes_and_labels() {
    let normalize = Normalize { mean: [0.1, 0.2, 0.3], std: [0.5, 0.6, 0.7] };
    let dataset = ImageDataset::new(noise(9), Vec::new(), normalize, 0).unwrap();
    let (images, labels) = dataset.batch(&[8, 2], 0).unwrap();
    assert_eq!((images.size(), images.kind()), (vec![2, 3, 24, 24], Kind::Float));
    assert_eq!((labels.size(), labels.kind()), (vec![2], Kind::Int64));
    for (place, index) in [8, 2].into_iter().enumerate() {
        let (image, label) = noise(9).image(index).unwrap().unwrap();
        assert_eq!(labels.int64_value(&[place as i64]), label as i64);
        // PyTorch's own operations, in the order of ToTensor and Normalize.
        let mean = Tensor::from_slice(&normalize.mean).view([3, 1, 1]);
        let std = Tensor::from_slice(&normalize.std).view([3, 1, 1]);
        let bytes = Tensor::from_slice(image.pixels()).view([24, 24, 3]).permute([2, 0, 1]);
        let expected = (bytes.to_kind(Kind::Float) / 255.0 - mean) / std;
        assert_eq!(images.get(place as i64), expected);
    }
}

#[test]
fn one_batch_is_spread_over_the_workers() {
    let (threads, changed) = (Mutex::new(HashSet::new()), Condvar::new());
    // An image comes only when two threads are at work on the images, or after a time limit.
    let image = move |_: usize| {
        let mut threads = threads.lock().unwrap();
        threads.insert(thread::current().id());
        changed.notify_all();
        let limit = Duration::from_secs(20);
        let alone = |threads: &mut HashSet<_>| threads.len() < 2;
        let (_threads, waited) = changed.wait_timeout_while(threads, limit, alone).unwrap();
        assert!(!waited.timed_out(), "one thread makes the batch alone");
        Ok(Some((Image::new(1, 1, vec![0; 3])?, 0)))
    };
    let dataset = ImageDataset::new(Made { len: 64, image }, Vec::new(), UNCHANGED, 0).unwrap();
    let options = DataLoaderOptions { batch_size: 64, num_workers: 2, ..Default::default() };
    let loader = DataLoader::with_options(dataset, SequentialSampler, options).unwrap();
    let batches: Result<Vec<_>> = loader.epoch(0).unwrap().collect();
    assert_eq!(batches.unwrap().len(), 1);
}

#[test]
fn without_workers_the_calling_thread_does_all_the_work() {
    let caller = thread::current().id();
    let image = move |_: usize| {
        assert_eq!(thread::current().id(), caller);
        Ok(Some((Image::new(1, 1, vec![0; 3])?, 0)))
    };
    let dataset = ImageDataset::new(Made { len: 16, image }, Vec::new(), UNCHANGED, 0).unwrap();
    let (images, _) = dataset.batch(&(0..16).collect::<Vec<_>>(), 0).unwrap();
    assert_eq!(images.size()[0], 16);
}

#[test]
fn images_of_different_sizes_make_no_batch() {
    // Image 1 has two pixels more than image 0.
    let image = |index: usize| Ok(Some((Image::new(2, index + 1, vec![0; 6 * (index + 1)])?, 0)));
    let growing = || Made { len: 4, image };
    let dataset = ImageDataset::new(growing(), Vec::new(), UNCHANGED, 0).unwrap();
    let expected = "size of image 1 is 2×2, but must be 2×3, as that of image 2: end the transforms with one that \
                    gives all images the same size";
    assert_eq!(dataset.batch(&[2, 2, 1], 0).unwrap_err().to_string(), expected);
    let transforms: Vec<Box<dyn Transform>> = vec![Box::new(CenterCrop::new(2))];
    let dataset = ImageDataset::new(growing(), transforms, UNCHANGED, 0).unwrap();
    assert_eq!(dataset.batch(&[2, 2, 1], 0).unwrap().0.size(), [3, 3, 2, 2]);
    let transforms: Vec<Box<dyn Transform>> = vec![Box::new(RandomCrop::new(3, 0))];
    let dataset = ImageDataset::new(growing(), transforms, UNCHANGED, 0).unwrap();
    let error = dataset.batch(&[2, 1], 0).unwrap_err().to_string();
    assert!(error.starts_with("image 2: "), "{error}");
}

#[test]
fn an_image_that_the_source_leaves_out_is_missing_in_its_batch_and_nothing_else_changes() {
    let all = noise(8);
    let even =
        move |index: usize| if index.is_multiple_of(2) { all.image(index) } else { Ok(None) };
    let even = Made { len: 8, image: even };
    let dataset = ImageDataset::new(even, Vec::new(), UNCHANGED, 0).unwrap();
    let whole = ImageDataset::new(noise(8), Vec::new(), UNCHANGED, 0).unwrap();
    assert_eq!(dataset.batch(&[1, 4, 3, 2], 0).unwrap(), whole.batch(&[4, 2], 0).unwrap());
    let expected = "a batch is of damaged images only, [5, 1], but must be one with at least one good image: repair \
                    or remove the files, or make larger batches";
    assert_eq!(dataset.batch(&[5, 1], 0).unwrap_err().to_string(), expected);
}

#[test]
fn an_index_past_the_end_is_refused_and_no_indices_make_an_empty_batch() {
    let dataset = ImageDataset::new(noise(4), Vec::new(), UNCHANGED, 0).unwrap();
    let expected = "index is 4, but must be less than the number of images, 4";
    assert_eq!(dataset.batch(&[1, 4], 0).unwrap_err().to_string(), expected);
    assert_eq!(dataset.batch(&[], 0).unwrap().0.size(), [0, 3, 0, 0]);
}
