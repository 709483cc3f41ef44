//! A model in two parts on two devices, for when it does not fit on one. Both, and a training step, are in `network`.

mod network;

use super::spans::{Show, at_once, busy};
use super::{parameters, synthetic_batch};
use crate::models::{CLASSES, FEATURES};
use anyhow::{Result, ensure};
use clap::value_parser;
use exhibit_kit::template;
use minijinja::context;
use network::{Network, Step};
use report::println;
use std::{collections::BTreeMap, time::Duration};
use tch::Tensor;
use tch_parallel::memory::{max_memory_allocated, memory_allocated, reset_peak_memory_stats};
use tch_parallel::{Devices, Error, LogicalDevice};

/// Train a model in two parts, on one device or on two.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  dp-basic model-parallel                        both parts on the first device
  dp-basic model-parallel --split                each on its own; compared with the above
  dp-basic model-parallel --split --svg two.svg  and a picture of who works when")]
pub struct Args {
    /// Put the second part on the second device (split_gpus in the thread).
    #[arg(long)]
    split: bool,
    /// Devices: 2xcpu for two logical devices, or a list such as cuda:0,cuda:1.
    #[arg(long, default_value = "2xcpu")]
    devices: Devices,
    /// Batch size.
    #[arg(long, default_value_t = 256, value_parser = value_parser!(i64).range(1..))]
    batch: i64,
    #[command(flatten)]
    show: Show,
}

/// A network after two training steps.
struct Trained {
    network: Network,
    /// The second step.
    step: Step,
    /// Each device's peak memory in that step, in bytes.
    peaks: BTreeMap<LogicalDevice, usize>,
}

pub fn run(args: &Args) -> Result<()> {
    let devices = &args.devices;
    let expected = "two devices, such as 2xcpu: the model has two parts";
    ensure!(devices.len() == 2, Error::argument("--devices", devices, expected));
    args.show.svg.check()?;
    // A logical device stands for one core.
    tch::set_num_threads(1);
    tch::manual_seed(0);
    let first = devices.first();
    let second = if args.split { devices.get(1)? } else { first };
    let original = Network::new([first, first])?;
    let trained = train(&original, [first, second], args.batch)?;
    print(devices, &trained, !args.show.no_times)?;
    let Trained { network, step, .. } = trained;
    if args.split {
        // Not before: its memory would count as the first device's.
        let whole = train(&original, [first, first], args.batch)?;
        println!("\ncompared with both parts on {first}:");
        println!("outputs {}", equality(&step.logits, &whole.step.logits)?);
        println!("gradients {}", equality(&network.gradients(), &whole.network.gradients())?);
    }
    let title = "A training step of a model in two parts".into();
    let categories = step.spans.iter().map(|(_, span)| span.category.clone()).collect();
    args.show.draw(title, devices, categories, &step.spans)
}

/// Trains a network with the weights of `original` for two steps: the first allocates memory.
fn train(original: &Network, devices: [LogicalDevice; 2], batch: i64) -> Result<Trained> {
    let before = devices.map(memory_allocated);
    let mut network = Network::new(devices)?;
    network.module1.vs.copy(&original.module1.vs)?;
    network.module2.vs.copy(&original.module2.vs)?;
    let (inputs, labels) = synthetic_batch(batch, FEATURES, CLASSES);
    let inputs = devices[0].copy_of(&inputs)?;
    network.step(&inputs, &labels)?;
    devices.into_iter().try_for_each(reset_peak_memory_stats)?;
    let step = network.step(&inputs, &labels)?;
    let peaks = devices.into_iter().zip(before);
    let peaks = peaks.map(|(device, before)| Ok((device, max_memory_allocated(device)? - before?)));
    Ok(Trained { network, step, peaks: peaks.collect::<Result<_>>()? })
}

fn equality(found: &Tensor, expected: &Tensor) -> Result<String> {
    let found = found.f_to_device(expected.device())?;
    if found == *expected {
        return Ok("equal to the last bit".into());
    }
    Ok(format!("differ by up to {:.1e}", (found - expected).abs().max().double_value(&[])))
}

fn print(devices: &Devices, trained: &Trained, times: bool) -> Result<()> {
    let Trained { network: Network { module1, module2 }, step, peaks } = trained;
    let begin = step.spans.first().map_or(Duration::ZERO, |(_, span)| span.start);
    let ends = step.spans.iter().map(|(_, span)| span.start + span.duration);
    let took = ends.max().unwrap_or_default().saturating_sub(begin);
    let devices = devices.iter().map(|device| {
        let parts = [module1, module2].into_iter().filter(|part| part.device == device);
        let parameters = parts.map(|part| parameters(&part.vs)).sum::<usize>();
        let peak = peaks.get(&device).copied().unwrap_or(0);
        let busy = busy(&step.spans, device);
        let share = busy.div_duration_f64(took);
        (device.to_string(), parameters * size_of::<f32>(), peak, busy.as_secs_f64(), share)
    });
    let spans = step.spans.iter().map(|(device, span)| {
        let [start, duration] = [span.start, span.duration].map(|time| time.as_secs_f64());
        (span.category.clone(), device.to_string(), start, duration)
    });
    let holes = context! {
        module1 => module1.device.to_string(),
        module2 => module2.device.to_string(),
        labels => LogicalDevice::of(&step.labels).to_string(),
        loss => LogicalDevice::of(&step.loss).to_string(),
        times,
        devices => devices.collect::<Vec<_>>(),
        spans => spans.collect::<Vec<_>>(),
        at_once => at_once(&step.spans),
    };
    Ok(template::print(&template::environment()?, include_str!("model_parallel.jinja"), holes)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    const BATCH: i64 = 16;

    /// Devices of one test only, since tests share the process, and a network on the first.
    fn two(first: usize) -> ([LogicalDevice; 2], Network) {
        let devices = [first, first + 1].map(LogicalDevice::Cpu);
        (devices, Network::new([devices[0]; 2]).unwrap())
    }

    #[test]
    fn two_devices_give_the_outputs_and_gradients_of_one() {
        let ([first, second], original) = two(30);
        let whole = train(&original, [first, first], BATCH).unwrap();
        let split = train(&original, [first, second], BATCH).unwrap();
        assert_eq!(split.step.logits, whole.step.logits);
        assert_eq!(split.step.loss, whole.step.loss);
        assert_eq!(split.network.gradients(), whole.network.gradients());
    }

    #[test]
    fn each_device_holds_its_part_and_the_second_labels_and_loss() {
        let ([first, second], original) = two(32);
        let Trained { network, step, .. } = train(&original, [first, second], BATCH).unwrap();
        let on = |part: &network::Part| -> BTreeSet<_> {
            let variables = part.vs.trainable_variables();
            variables.iter().flat_map(|v| [v, &v.grad()].map(LogicalDevice::of)).collect()
        };
        assert_eq!(on(&network.module1), BTreeSet::from([first]));
        assert_eq!(on(&network.module2), BTreeSet::from([second]));
        assert_eq!([&step.labels, &step.loss, &step.logits].map(LogicalDevice::of), [second; 3]);
    }

    #[test]
    fn two_devices_share_the_bytes_of_one() {
        let ([first, second], original) = two(34);
        let peak = |devices: [_; 2]| train(&original, devices, BATCH).unwrap().peaks[&devices[0]];
        let whole = peak([first, first]);
        let halves = [peak([first, second]), peak([second, first])];
        // Weights and gradients are nearly all that there is.
        assert!(halves.iter().all(|half| *half < whole), "{halves:?} of {whole}");
    }

    #[test]
    fn one_device_works_at_a_time() {
        let ([first, second], original) = two(36);
        let spans = train(&original, [first, second], BATCH).unwrap().step.spans;
        assert_eq!(at_once(&spans), 1);
        assert!([first, second].iter().all(|device| busy(&spans, *device) > Duration::ZERO));
    }
}
