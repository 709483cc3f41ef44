//! How many images a second the loader decodes, augments and puts into batches.
//!
//! It goes through the images twice, with the same workers, and measures the second time.
//! `cargo xtask bench images` compares it with torchvision.
//!
//! ```text
//! cargo run -rq -p tch-parallel --features images --example image_pipeline -- IMAGES WORKERS BATCH_SIZE METRICS
//! ```

use anyhow::{Context, Result};
use report::MetricsLog;
use serde_json::json;
use std::{env, path::Path, time::Instant};
use tch_parallel::data::transforms::{Normalize, RandomHorizontalFlip, RandomResizedCrop};
use tch_parallel::data::{
    DataLoader, DataLoaderOptions, ImageDataset, ImageFolder, RandomSampler, Shard,
};

fn main() -> Result<()> {
    let arguments = env::args().skip(1).collect::<Vec<_>>();
    let [images, workers, batch_size, metrics] = &arguments[..] else {
        anyhow::bail!(
            "expected a folder of images, the numbers of workers and of images in a batch, and a folder for metrics"
        );
    };
    let workers = workers.parse().context("the number of workers is no number")?;
    let batch_size = batch_size.parse().context("the batch size is no number")?;

    let dataset = ImageDataset::new(
        ImageFolder::new(images)?,
        vec![Box::new(RandomResizedCrop::new(224)), Box::new(RandomHorizontalFlip::default())],
        Normalize::IMAGENET,
        0,
    )?;
    let options = DataLoaderOptions { batch_size, num_workers: workers, ..Default::default() };
    let loader = DataLoader::with_options(dataset, RandomSampler::new(0), options)?;

    let (mut images, mut rate) = (0, 0.0);
    for epoch in 0..2 {
        let start = Instant::now();
        let sizes = loader.epoch(epoch)?.map(|batch| batch.map(|(_, labels)| labels.numel()));
        images = sizes.sum::<tch_parallel::Result<usize>>()?;
        rate = images as f64 / start.elapsed().as_secs_f64();
    }
    let end = json!({ "images": images, "images_per_second": rate });
    MetricsLog::create(Some(Path::new(metrics)), Shard::WHOLE)?.log("end", &end)?;
    Ok(())
}
