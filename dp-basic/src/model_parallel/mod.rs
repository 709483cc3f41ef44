//! A model in two parts on two devices, for when it does not fit one.

mod network;
mod print;
mod spans;

use crate::models::{CLASSES, FEATURES};
use anyhow::{Result, ensure};
use network::{Network, Step};
use report::plot;
use std::path::PathBuf;
use tch::Tensor;
use tch_parallel::checkpoint::check_destination;
use tch_parallel::memory::{max_memory_allocated, memory_allocated, reset_peak_memory_stats};
use tch_parallel::{Devices, LogicalDevice};

/// Train a model in two parts, on one device or on two.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  dp-basic model-parallel                        both parts on the first device
  dp-basic model-parallel --split                each on its own; compared with the above
  dp-basic model-parallel --split --svg two.svg  and a picture of who works when")]
pub struct Args {
    /// Put the second part on the second device; the thread's split_gpus.
    #[arg(long)]
    split: bool,
    /// The two devices: cpu:2, or a list such as cuda:0,cuda:1.
    #[arg(long, default_value = "cpu:2")]
    devices: String,
    /// Rows of a batch.
    #[arg(long, default_value_t = 256)]
    batch: i64,
    /// Draw the step as a timeline, a lane for each device.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Leave out the times, which differ from run to run.
    #[arg(long)]
    no_times: bool,
}

/// A network after two training steps of which the second was measured.
struct Trained {
    network: Network,
    step: Step,
    /// By device: the most bytes that lived at once in the second step.
    peaks: Vec<(LogicalDevice, usize)>,
}

pub fn run(args: &Args) -> Result<()> {
    let devices: Devices = args.devices.parse()?;
    ensure!(
        devices.len() == 2,
        "--devices is {devices}, but must be two devices, such as cpu:2: the model has two parts"
    );
    ensure!(
        args.batch > 0,
        "--batch is {}, but must be at least 1: a row is needed to train",
        args.batch
    );
    if let Some(path) = &args.svg {
        check_destination(path)?;
    }
    // A device stands for one core.
    tch::set_num_threads(1);
    tch::manual_seed(0);
    let first = devices.first();
    let second = if args.split { devices.get(1)? } else { first };
    let original = Network::new([first, first])?;
    let trained = trained(&original, [first, second], args.batch)?;
    print!("{}", print::report(&devices, &trained, !args.no_times));
    if args.split {
        // Only now: it would be counted among what the first device holds.
        let whole = self::trained(&original, [first, first], args.batch)?;
        println!("\ncompared with both parts on {first}:");
        println!("outputs {}", equality(&trained.step.logits, &whole.step.logits)?);
        println!(
            "gradients {}",
            equality(&gradients(&trained.network)?, &gradients(&whole.network)?)?
        );
    }
    if let Some(path) = &args.svg {
        plot::save(path, &print::timeline(&devices, &trained.step)?)?;
    }
    Ok(())
}

/// Two steps of a network that has the weights of `original`; the first waits for memory.
fn trained(original: &Network, devices: [LogicalDevice; 2], batch: i64) -> Result<Trained> {
    let before = devices.map(memory_allocated);
    let mut network = Network::new(devices)?;
    network.copy_weights(original)?;
    let numbers = Tensor::arange(batch * FEATURES, tch::kind::FLOAT_CPU);
    let inputs = devices[0].copy_of(&(numbers * 0.7).sin().view([batch, FEATURES]))?;
    let labels = Tensor::arange(batch, tch::kind::INT64_CPU).remainder(CLASSES);
    network.step(&inputs, &labels)?;
    for device in devices {
        reset_peak_memory_stats(device)?;
    }
    let step = network.step(&inputs, &labels)?;
    let mut peaks = Vec::new();
    for (device, before) in devices.into_iter().zip(before) {
        peaks.push((device, max_memory_allocated(device)? - before?));
    }
    Ok(Trained { network, step, peaks })
}

/// All gradients in a row, on the CPU.
fn gradients(network: &Network) -> Result<Tensor> {
    let mut flat = Vec::new();
    for part in [&network.module1, &network.module2] {
        for variable in part.vs.trainable_variables() {
            flat.push(variable.grad().f_to_device(tch::Device::Cpu)?.view([-1]));
        }
    }
    Ok(Tensor::f_cat(&flat, 0)?)
}

fn equality(found: &Tensor, expected: &Tensor) -> Result<String> {
    let found = found.f_to_device(expected.device())?;
    if found == *expected {
        return Ok("equal to the last bit".into());
    }
    let difference = (found - expected).abs().max().double_value(&[]);
    Ok(format!("differ by up to {difference:.1e}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::time::Duration;

    const BATCH: i64 = 16;

    /// Devices of one test only: tests share the process.
    fn two(first: usize) -> [LogicalDevice; 2] {
        [LogicalDevice::Cpu(first), LogicalDevice::Cpu(first + 1)]
    }

    #[test]
    fn two_devices_give_the_outputs_and_gradients_of_one() {
        let [first, second] = two(30);
        let original = Network::new([first, first]).unwrap();
        let whole = trained(&original, [first, first], BATCH).unwrap();
        let split = trained(&original, [first, second], BATCH).unwrap();
        assert_eq!(split.step.logits, whole.step.logits);
        assert_eq!(split.step.loss, whole.step.loss);
        assert_eq!(gradients(&split.network).unwrap(), gradients(&whole.network).unwrap());
    }

    #[test]
    fn each_device_holds_its_part_and_the_second_labels_and_loss() {
        let [first, second] = two(32);
        let original = Network::new([first, first]).unwrap();
        let split = trained(&original, [first, second], BATCH).unwrap();
        let Trained { network, step, .. } = &split;
        let on = |part: &network::Part| {
            let variables = part.vs.trainable_variables();
            let both =
                variables.iter().flat_map(|v| [LogicalDevice::of(v), LogicalDevice::of(&v.grad())]);
            both.collect::<BTreeSet<_>>()
        };
        assert_eq!(on(&network.module1), BTreeSet::from([first]));
        assert_eq!(on(&network.module2), BTreeSet::from([second]));
        assert_eq!([&step.labels, &step.loss, &step.logits].map(LogicalDevice::of), [second; 3]);
    }

    #[test]
    fn two_devices_share_the_bytes_of_one() {
        let [first, second] = two(34);
        let original = Network::new([first, first]).unwrap();
        let peak = |devices| {
            let peaks = trained(&original, devices, BATCH).unwrap().peaks;
            peaks[0].1
        };
        let whole = peak([first, first]);
        let halves = [peak([first, second]), peak([second, first])];
        // Weights and gradients are nearly all that there is.
        assert!(halves.iter().all(|half| *half < whole), "{halves:?} of {whole}");
    }

    #[test]
    fn one_device_works_at_a_time() {
        let [first, second] = two(36);
        let original = Network::new([first, first]).unwrap();
        let spans = trained(&original, [first, second], BATCH).unwrap().step.spans;
        assert_eq!(spans::at_once(&spans), 1);
        assert!([first, second].iter().all(|device| spans::busy(&spans, *device) > Duration::ZERO));
    }
}
