//! What tests of ddp-imagenet share.

use crate::{job::Job, prelude::*, training::Training};
use jpeg_encoder::{ColorType, Encoder};

/// The flags that make a training to be compared write its metrics to the job's directory. The
/// checkpoints go there anyway.
pub const OUTPUTS: [&str; 2] = ["--metrics", "metrics"];

pub const CHECKPOINT: &str = "checkpoint.safetensors";

/// The results of a training that was started with [`OUTPUTS`].
pub fn training(job: &Job, world_size: usize) -> Result<Training> {
    let of_model = |(name, value): (String, _)| Some((name.strip_prefix("model.")?.into(), value));
    let weights = job.tensors(CHECKPOINT)?.into_iter().filter_map(of_model);
    Training::with_weights(job, world_size, weights.collect())
}

/// A job with a folder `images` of two classes, which in `train` and in `val` have `count` small JPEG files each. No
/// two are equal, not even in size.
pub fn job_with_images(count: u8) -> Result<Job> {
    let job = Job::new()?;
    for part in ["train", "val"] {
        for (label, class) in ["blue", "red"].into_iter().enumerate() {
            let folder = job.path("images").join(part).join(class);
            fs::create_dir_all(&folder)?;
            for index in 0..count {
                write_jpeg(&folder.join(format!("{index}.jpg")), label, index)?;
            }
        }
    }
    Ok(job)
}

/// A picture that is blue or red, and darker towards a corner.
fn write_jpeg(path: &Path, label: usize, index: u8) -> Result<()> {
    let (width, height) = (40 + u16::from(index), 48);
    let pixels = (0..height).flat_map(|y| (0..width).map(move |x| (x, y))).flat_map(|(x, y)| {
        let light = 255 - ((x + y) % 256) as u8;
        let dim = light / 4;
        if label == 0 { [dim, dim, light] } else { [light, dim, index] }
    });
    let encoder = Encoder::new_file(path, 90)?;
    Ok(encoder.encode(&pixels.collect::<Vec<_>>(), width, height, ColorType::Rgb)?)
}
