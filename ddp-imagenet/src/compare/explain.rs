//! What the table shows, in words, beside the article's numbers.

use super::method::Method;
use super::runs::Measured;
use super::train::OptimizerKind;
use tch_parallel::meter::DeviceReport;
use tch_parallel::report::{size, thousands};

/// Classes of CIFAR-10, and of the digits: the numbers that a network gives for an image.
const CLASSES: usize = 10;

/// Training images of CIFAR-10.
const CIFAR10_IMAGES: usize = 50_000;

/// The article's batches: of one GPU, and of its four.
const SINGLE_BATCH: usize = 240;
const PARALLEL_BATCH: usize = 768;
const GPUS: usize = 4;

/// Parameters of the article's network.
const PARAMETERS: usize = 24_253_410;

/// Paragraphs on time, memory and what the article says of them.
pub fn explain(measured: &[Measured]) -> String {
    let of = |method, optimizer| {
        measured
            .iter()
            .find(|found| found.run.method == method && found.run.optimizer == optimizer)
    };
    let mut text = clock(measured);
    let data_parallel = of(Method::DataParallel, OptimizerKind::Sgd);
    let with_adam = of(Method::DataParallel, OptimizerKind::Adam);
    if let (Some(sgd), Some(adam)) = (data_parallel, with_adam) {
        text += "\n";
        text += &imbalance(sgd, adam);
    }
    for method in [Method::Ddp, Method::Apex] {
        if let Some(found) = of(method, OptimizerKind::Sgd) {
            text += "\n";
            text += &ranks(found);
        }
    }
    text += "\n";
    text += &speed(measured);
    text
}

/// What is counted (S4.46).
fn clock(measured: &[Measured]) -> String {
    let waits = measured.iter().map(|found| {
        let whole = found.batch_seconds + found.fetch_seconds;
        100.0 * found.fetch_seconds / whole
    });
    let longest = waits.fold(0.0, f64::max);
    format!(
        "The batch time is the article's: its clock starts when the batch is there. For that a step \
         waits up to {longest:.0} % of its\ntime here, the column fetch; epoch and images/s count \
         both.\n"
    )
}

/// The bytes of a network's outputs for so many images.
fn output_bytes(images: usize) -> usize {
    images * CLASSES * size_of::<f32>()
}

/// By how much the first device exceeds the emptiest of the others.
fn surplus(devices: &[DeviceReport]) -> usize {
    let least = devices.iter().map(|device| device.peak).min().unwrap_or(0);
    devices[0].peak.saturating_sub(least)
}

/// DataParallel's first device, with either optimizer (S4.42, S4.47).
fn imbalance(sgd: &Measured, adam: &Measured) -> String {
    let home = &sgd.devices[0];
    let [more, more_with_adam] = [sgd, adam].map(|found| surplus(&found.devices));
    let [state, adams] = [sgd, adam].map(|found| found.devices[0].optimizer_state);
    let gathered = output_bytes(sgd.batch_size() - sgd.images);
    format!(
        "data-parallel: {} needs {} more than the others, {:.1} % of its own, and with Adam {}.\n  \
         It alone has the optimizer's state: {} of momentum, or Adam's {}, two numbers for each \
         parameter instead of one.\n  The outputs that it gathers from the others are {} images x \
         {CLASSES} classes x 4 bytes, {}; the article's were at most\n  {PARALLEL_BATCH} x {CLASSES} \
         x 4 = {} bytes, where BERT's are gigabytes. So where there is a difference, the optimizer \
         makes it.\n  The article sees none, \"because of SGD\"; but the script that it ran has Adam. \
         For its {} parameters that are {} or {},\n  of 10 GB: nvidia-smi would hardly show either.\n",
        home.device,
        size(more),
        100.0 * more as f64 / home.peak as f64,
        size(more_with_adam),
        size(state),
        size(adams),
        sgd.batch_size() - sgd.images,
        size(gathered),
        thousands(output_bytes(PARALLEL_BATCH)),
        thousands(PARAMETERS),
        size(4 * PARAMETERS),
        size(2 * 4 * PARAMETERS),
    )
}

/// Processes for each device.
fn ranks(found: &Measured) -> String {
    let first = &found.devices[0];
    let same = found.devices.iter().all(|device| device.peak == first.peak);
    format!(
        "{}: {}. Each has the optimizer's state, {}, and\n  its gradients once more where they \
         travel, {}.\n",
        found.run.method,
        if same { "all ranks need the same, to the byte" } else { "the ranks differ" },
        size(first.optimizer_state),
        size(found.buckets()),
    )
}

/// How much faster several devices are, and what the article makes of it (S4.46, S4.49).
fn speed(measured: &[Measured]) -> String {
    let Some(single) = measured.iter().find(|found| found.run.method == Method::Single) else {
        return String::new();
    };
    let mut text = format!("Images a second, as multiples of one device with {} images:", single.images);
    for found in measured.iter().filter(|found| found.run.method != Method::Single) {
        let times = found.images_per_second() / single.images_per_second();
        text += &format!(
            "\n  {}: {times:.2} on {} devices with {} images each",
            found.run,
            found.devices.len(),
            found.images
        );
    }
    let [single_batches, parallel_batches] =
        [SINGLE_BATCH, PARALLEL_BATCH].map(|batch| CIFAR10_IMAGES.div_ceil(batch));
    text + &format!(
        "\nThe article has 22 minutes for an epoch on one GPU, {single_batches} batches of \
         {SINGLE_BATCH}, and 5 on four, {parallel_batches} batches of {PARALLEL_BATCH}: 4.4 times \
         as fast,\nwhich is more than four GPUs can give ({parallel_batches} x 5 s are 5.5 minutes). \
         {PARALLEL_BATCH} on {GPUS} are {} on each, although one could hold {SINGLE_BATCH}.\nIt \
         advises distributed training for larger batches and more speed, \"but then not on one \
         computer\". Its own ran on one, and\nso did these.\n",
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
        let batches = |batch: usize| (CIFAR10_IMAGES.div_ceil(batch), CIFAR10_IMAGES % batch);
        assert_eq!(batches(240), (209, 80));
        assert_eq!(batches(768), (66, 80));
        assert_eq!(batches(512).0, 98);
        // A rank's share of an epoch, in batches of its own.
        let ranks = |batch: usize| (12_500usize.div_ceil(batch), 12_500 % batch);
        assert_eq!(ranks(192), (66, 20));
        assert_eq!(ranks(60), (209, 20));
    }

    #[test]
    fn the_articles_minutes_follow_from_its_seconds() {
        // S4.44 and S4.45: 209 batches of 6 to 7 s, 66 of 5 s.
        let minutes = |batches: f64, seconds: f64| batches * seconds / 60.0;
        assert!((minutes(209.0, 6.0)..minutes(209.0, 7.0)).contains(&22.0));
        assert_eq!(minutes(66.0, 5.0), 5.5);
    }
}
