//! One training in processes of its own, and what it measured.

use super::args::CompareArgs;
use crate::args::data::DataArgs;
use crate::exhibits::train_cifar::{EpochEvent, Method, OptimizerKind, StepEvent};
use anyhow::Result;
use exhibit_kit::comparison::{Comparison, Training, Workers};
use report::{DeviceReport, Meter, eprintln, flag_value, median};
use std::ffi::OsString;
use tch_parallel::LogicalDevice;

#[derive(Debug, Clone, PartialEq)]
pub struct Measured {
    /// The method and its optimizer.
    pub name: String,
    pub method: Method,
    /// Images in a batch of each device.
    pub images: usize,
    pub devices: Vec<DeviceReport>,
    /// Batches of a whole epoch.
    pub batches: usize,
    /// The slowest rank's median, by the article's clock, which starts when the batch is there.
    pub batch_seconds: f64,
    /// The slowest rank's median of the wait for a batch.
    pub fetch_seconds: f64,
    /// Only if a whole epoch was run.
    pub epoch_seconds: Option<f64>,
}

impl Measured {
    /// Images in a batch of all devices together.
    pub fn batch_size(&self) -> usize {
        self.images * self.devices.len()
    }

    /// For a batch, including the wait for it.
    pub fn seconds(&self) -> f64 {
        self.batch_seconds + self.fetch_seconds
    }

    /// Including the wait for batches.
    pub fn images_per_second(&self) -> f64 {
        self.batch_size() as f64 / self.seconds()
    }

    /// How long an epoch takes: measured, or else projected from the batches that were run.
    pub fn epoch_seconds(&self) -> f64 {
        self.epoch_seconds.unwrap_or(self.batches as f64 * self.seconds())
    }
}

/// Trains, and shows every line on stderr as it comes.
pub fn train(
    args: &CompareArgs,
    comparison: &Comparison,
    method: Method,
    optimizer: OptimizerKind,
) -> Result<Measured> {
    let (method_flag, optimizer) = (flag_value(&method), flag_value(&optimizer));
    let name = format!("{method_flag}, {optimizer}");
    let CompareArgs { data, arch, devices: all, steps, .. } = args;
    let on_cpu = matches!(all.first(), LogicalDevice::Cpu(_));
    let images = args.images(method)?;
    let workers = args.workers(method);
    let (devices, batch_size) = match method {
        Method::Single => (all.first().to_string(), images),
        Method::DataParallel | Method::Ddp => (all.to_string(), data.batch_size),
        // Its flags are those of one process.
        Method::Apex => (all.to_string(), images),
    };
    let flags = format!(
        "train-cifar --arch={arch} --method={method_flag} --optimizer={optimizer} --devices={devices} \
         --batch-size={batch_size} --workers={workers} --steps={steps}"
    );
    let flags = flags.split(' ').map(OsString::from).chain(same_images(data)).collect();
    let ranks = Workers::Ranks(all.len());
    let workers = if method.is_distributed() { ranks } else { Workers::Process };
    let training = Training { name: name.clone(), flags, workers, single_threaded: on_cpu };
    let metrics = comparison.run(&training, |line| eprintln!("{name:<20}| {line}"))?;

    let steps = metrics.events_by_rank::<StepEvent>("step")?;
    let slowest = |seconds: fn(&StepEvent) -> f64| {
        let counted = steps.iter().map(|steps| steps.iter().skip(Meter::WARM_UP));
        counted.filter_map(|steps| median(steps.map(seconds))).fold(0.0, f64::max)
    };
    let epochs = metrics.events::<EpochEvent>("epoch")?;
    let whole = epochs.iter().filter(|epoch| epoch.taken == epoch.batches);
    Ok(Measured {
        name,
        method,
        images,
        devices: metrics.devices(if method == Method::Single { 1 } else { all.len() })?,
        batches: epochs.first().map_or(0, |epoch| epoch.batches),
        batch_seconds: slowest(|step| step.batch_seconds),
        fetch_seconds: slowest(|step| step.fetch_seconds),
        epoch_seconds: whole.map(|epoch| epoch.seconds).reduce(f64::max),
    })
}

/// The flags that make another process use the same images, in batches of its own.
fn same_images(data: &DataArgs) -> Vec<OsString> {
    let mut flags = vec![OsString::from(format!("--dataset={}", flag_value(&data.source())))];
    flags.extend(data.image_size.map(|pixels| format!("--image-size={pixels}").into()));
    flags.extend(data.download.then(|| "--download".into()));
    flags.extend(data.no_augment.then(|| "--no-augment".into()));
    flags.extend(data.skip_bad.then(|| "--skip-bad".into()));
    flags.extend(data.dir.clone().map(OsString::from));
    flags
}

#[cfg(test)]
mod tests {
    use super::*;
    use report::parse_flags;

    #[test]
    fn flags_for_another_process_name_the_same_images() {
        let data = |flags: Vec<OsString>| parse_flags::<DataArgs>(flags).unwrap();
        for given in [
            "--dataset cifar10 --download",
            "--dummy --image-size 64 --no-augment",
            "--skip-bad some/dir",
        ] {
            let given = data(given.split(' ').map(OsString::from).collect());
            let again = data(same_images(&given));
            assert_eq!(again.source(), given.source());
            // Which --dummy is, in another spelling.
            let again = DataArgs { dummy: given.dummy, dataset: given.dataset, ..again };
            assert_eq!(format!("{again:?}"), format!("{given:?}"));
        }
    }
}
