//! What the table shows, in words, beside the article's numbers.

use super::runs::Measured;
use report::DeviceReport;
use report::{size, thousands};

/// Classes of CIFAR-10: the numbers that the article's network gives for an image.
const CLASSES: usize = 10;

/// Training images of CIFAR-10.
const CIFAR10_IMAGES: usize = 50_000;

/// The article's batch on one GPU.
const SINGLE_BATCH: usize = 240;

/// And on four.
const PARALLEL_BATCH: usize = 768;
const GPUS: usize = 4;

/// Parameters of the article's network.
const PARAMETERS: usize = 24_253_410;

/// Paragraphs on time and memory, and on what the article says of them.
pub fn explain(measured: &[Measured; 5]) -> Vec<String> {
    let [single, data_parallel, with_adam, ddp, apex] = measured;
    vec![
        clock(measured),
        evenness(data_parallel, with_adam),
        article_on_memory(),
        evenness_of_ranks(ddp),
        evenness_of_ranks(apex),
        speed(single, &measured[1..]),
        article_on_speed(),
    ]
}

/// What is counted (S4.46).
fn clock(measured: &[Measured]) -> String {
    let share =
        |found: &Measured| found.fetch_seconds / (found.batch_seconds + found.fetch_seconds);
    let longest = measured.iter().map(share).fold(0.0, f64::max);
    format!(
        "The batch time is the article's: its clock starts when the batch is there. How long a batch \
         is waited for stands under fetch, here up to {:.0} % of both together; epoch and images/s \
         count it.",
        100.0 * longest
    )
}

/// DataParallel's devices, with either optimizer (S4.42, S4.47).
fn evenness(sgd: &Measured, adam: &Measured) -> String {
    let home = &sgd.devices[0].device;
    let [more, more_with_adam] = [sgd, adam].map(|found| surplus(&found.devices));
    let [state, adams_state] = [sgd, adam].map(|found| found.devices[0].optimizer_state);
    let gathered = sgd.batch_size() - sgd.images;
    format!(
        "data-parallel: {home} needs {} more than the others, and with Adam {}. It alone has the \
         optimizer's state: SGD's momentum, {}, or Adam's two numbers for each parameter, {}. Without \
         that the devices are the same to {:.1} %. The outputs that {home} gathers, of {gathered} \
         images, take {}.",
        signed(more),
        signed(more_with_adam),
        size(state),
        size(adams_state),
        100.0 * (more - state as i64).unsigned_abs() as f64 / sgd.devices[0].peak as f64,
        size(output_bytes(gathered)),
    )
}

/// By how much the first device exceeds the fullest of the others.
fn surplus(devices: &[DeviceReport]) -> i64 {
    let others = devices[1..].iter().map(|device| device.peak).max().unwrap_or(0);
    devices[0].peak as i64 - others as i64
}

fn signed(bytes: i64) -> String {
    let sign = if bytes < 0 { "-" } else { "" };
    format!("{sign}{}", size(bytes.unsigned_abs() as usize))
}

/// The bytes of a network's outputs for so many images.
fn output_bytes(images: usize) -> usize {
    images * CLASSES * size_of::<f32>()
}

/// What the article sees on its GPUs, and why.
fn article_on_memory() -> String {
    let numbers = |count: usize| size(count * size_of::<f32>());
    format!(
        "The article finds DataParallel's memory even here and uneven with BERT, and gives two \
         reasons: an image's output is small, and BERT has Adam where this has SGD. The first holds: \
         {PARALLEL_BATCH} x {CLASSES} numbers are {} bytes, and BERT's are gigabytes. The second does \
         not: the script of the companion repository for DataParallel has Adam. Its state takes {} \
         for {} parameters, SGD's {}: with 10 GB in use, nvidia-smi hardly shows either.",
        thousands(output_bytes(PARALLEL_BATCH)),
        numbers(2 * PARAMETERS),
        thousands(PARAMETERS),
        numbers(PARAMETERS),
    )
}

/// Processes with a device each.
fn evenness_of_ranks(found: &Measured) -> String {
    let first = &found.devices[0];
    let same = found.devices.iter().all(|device| device.peak == first.peak);
    let others = found.devices.iter().map(DeviceReport::others).max().unwrap_or(0);
    format!(
        "{}: {}. Each has the optimizer's state, {}; beside its gradients, the buckets in which they \
         travel and the memory that its loader keeps for the next batch come to {}.",
        found.run.method,
        if same { "all ranks need the same, to the byte" } else { "the ranks differ" },
        size(first.optimizer_state),
        size(others),
    )
}

/// How much faster several devices are.
fn speed(single: &Measured, others: &[Measured]) -> String {
    let times = others.iter().map(|found| {
        let times = found.images_per_second() / single.images_per_second();
        format!("{times:.2} with {} on {} devices", found.run, found.devices.len())
    });
    format!(
        "Images a second, as multiples of those of one device with {} a batch: {}.",
        single.images,
        times.collect::<Vec<_>>().join("; ")
    )
}

/// What the article makes of its times (S4.44, S4.45, S4.46, S4.49).
fn article_on_speed() -> String {
    let [single_batches, parallel_batches] =
        [SINGLE_BATCH, PARALLEL_BATCH].map(|batch| CIFAR10_IMAGES.div_ceil(batch));
    format!(
        "The article's epoch takes 22 minutes on one GPU, in {single_batches} batches of \
         {SINGLE_BATCH}, and 5 on {GPUS}, in {parallel_batches} of {PARALLEL_BATCH}: 4.4 times as \
         fast, which is more than {GPUS} GPUs can be ({parallel_batches} batches of 5 s take 5.5 \
         minutes). On each of the {GPUS} a batch has {} images, although one can hold \
         {SINGLE_BATCH}. For larger batches and more speed it advises distributed training, and \
         says that this is not for a single computer; its own ran on one, and so did ddp and apex \
         here.",
        PARALLEL_BATCH / GPUS
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_articles_outputs_are_30_720_bytes() {
        // S4.42
        assert_eq!(output_bytes(PARALLEL_BATCH), 30_720);
    }

    #[test]
    fn an_epoch_of_cifar_10_has_209_batches_of_240_and_66_of_768() {
        let batches = |images: usize, batch: usize| (images.div_ceil(batch), images % batch);
        assert_eq!(batches(CIFAR10_IMAGES, 240), (209, 80));
        assert_eq!(batches(CIFAR10_IMAGES, 768), (66, 80));
        assert_eq!(batches(CIFAR10_IMAGES, 512).0, 98);
        // A rank's quarter, in batches of its own.
        assert_eq!(batches(CIFAR10_IMAGES / 4, 192), (66, 20));
        assert_eq!(batches(CIFAR10_IMAGES / 4, 60), (209, 20));
    }

    #[test]
    fn the_articles_minutes_follow_from_its_seconds() {
        // S4.44 and S4.45: 209 batches of 6 to 7 s, 66 of 5 s.
        let minutes = |batches: f64, seconds: f64| batches * seconds / 60.0;
        assert!((minutes(209.0, 6.0)..minutes(209.0, 7.0)).contains(&22.0));
        assert_eq!(minutes(66.0, 5.0), 5.5);
    }
}
