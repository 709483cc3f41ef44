//! Decodes and transforms the pictures in a folder, and saves what comes of them: what Pillow and
//! torchvision make of the same files.
//!
//! ```text
//! cargo run -rq -p tch-parallel --features images --example images -- PICTURES rust.safetensors
//! ```

use anyhow::{Context, Result};
use std::{env, fs, path::Path};
use tch::Tensor;
use tch_parallel::data::transforms::functional::{CropBox, resized_crop};
use tch_parallel::data::transforms::{CenterCrop, Normalize, Resize, Transform};
use tch_parallel::data::{Dataset, Image, ImageDataset, ImageSource, SampleRng, decode};

struct Single(Image);

impl ImageSource for Single {
    fn len(&self) -> usize {
        1
    }

    fn classes(&self) -> &[String] {
        &[]
    }

    fn image(&self, _index: usize) -> tch_parallel::Result<Option<(Image, usize)>> {
        Ok(Some((self.0.clone(), 0)))
    }
}

fn main() -> Result<()> {
    let mut arguments = env::args().skip(1);
    let folder = arguments.next().context("the first argument is missing: a folder of pictures")?;
    let file = arguments.next().context("the second argument is missing: a file to write")?;
    let mut tensors = Vec::new();
    for entry in fs::read_dir(&folder).with_context(|| format!("cannot read {folder}"))? {
        let entry = entry?;
        let picture = entry.file_name();
        let named = |(name, tensor)| (format!("{}/{name}", picture.display()), tensor);
        tensors.extend(transformed(&entry.path())?.map(named));
    }
    Ok(Tensor::write_safetensors(&tensors, file)?)
}

fn transformed(path: &Path) -> Result<[(&'static str, Tensor); 5]> {
    let picture = decode(&fs::read(path)?, path)?;
    // What is not random draws nothing from it.
    let mut rng = SampleRng::new(0, 0, 0);
    let evaluated = Resize::new(256).apply(picture.clone(), &mut rng)?;
    let evaluated = CenterCrop::new(224).apply(evaluated, &mut rng)?;
    // As RandomResizedCrop may draw them.
    let part = CropBox { top: 17, left: 23, height: 301, width: 433 };
    let shrunk = resized_crop(&picture, part, 224, 224)?;
    let part = CropBox { top: 100, left: 200, height: 61, width: 90 };
    let enlarged = resized_crop(&picture, part, 224, 224)?;

    let (decoded, transforms) = (bytes(&picture), vec![Box::new(CenterCrop::new(224)) as _]);
    let dataset = ImageDataset::new(Single(picture), transforms, Normalize::IMAGENET, 0)?;
    let (normalized, _) = dataset.batch(&[0], 0)?;
    Ok([
        ("decoded", decoded),
        ("evaluated", bytes(&evaluated)),
        ("shrunk", bytes(&shrunk)),
        ("enlarged", bytes(&enlarged)),
        ("normalized", normalized.squeeze_dim(0)),
    ])
}

/// `[height, width, 3]`.
fn bytes(image: &Image) -> Tensor {
    Tensor::from_slice(image.pixels()).view([image.height() as i64, image.width() as i64, 3])
}
