//! A model in two parts on two devices, for when it does not fit one.
//!
//! | file | what it holds |
//! |---|---|
//! | `network` | the two parts, and a training step through both |
//! | `print` | a step as text |

mod network;
mod print;

use super::check_batch;
use super::spans::Show;
use crate::models::{CLASSES, FEATURES};
use anyhow::{Result, ensure};
use network::{Network, Step};
use std::collections::BTreeMap;
use tch::Tensor;
use tch_parallel::memory::{max_memory_allocated, memory_allocated, reset_peak_memory_stats};
use tch_parallel::{Devices, LogicalDevice};

/// Train a model in two parts, on one device or on two.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  dp-basic model-parallel                        both parts on the first device
  dp-basic model-parallel --split                each on its own; compared with the above
  dp-basic model-parallel --split --svg two.svg  and a picture of who works when")]
pub struct Args {
    /// Put the second part on the second device (the thread's split_gpus).
    #[arg(long)]
    split: bool,
    /// The two devices: cpu:2, or a list such as cuda:0,cuda:1.
    #[arg(long, default_value = "cpu:2")]
    devices: String,
    /// Rows of a batch.
    #[arg(long, default_value_t = 256)]
    batch: i64,
    #[command(flatten)]
    show: Show,
}

/// A network after two training steps of which the second was measured.
struct Trained {
    network: Network,
    step: Step,
    /// The most bytes that each device held at once in the second step.
    peaks: BTreeMap<LogicalDevice, usize>,
}

pub fn run(args: &Args) -> Result<()> {
    let devices: Devices = args.devices.parse()?;
    ensure!(
        devices.len() == 2,
        "--devices is {devices}, but must be two devices, such as cpu:2: the model has two parts"
    );
    check_batch(args.batch)?;
    args.show.check()?;
    // A device stands for one core.
    tch::set_num_threads(1);
    tch::manual_seed(0);
    let first = devices.first();
    let second = if args.split { devices.get(1)? } else { first };
    let original = Network::new([first, first])?;
    let trained = train(&original, [first, second], args.batch)?;
    print::print(&devices, &trained, &args.show);
    let Trained { network, step, .. } = trained;
    if args.split {
        // Only now: it would be counted among what the first device holds.
        let whole = train(&original, [first, first], args.batch)?;
        let [found, expected] = [&network, &whole.network].map(gradients);
        println!("\ncompared with both parts on {first}:");
        println!("outputs {}", equality(&step.logits, &whole.step.logits)?);
        println!("gradients {}", equality(&found?, &expected?)?);
    }
    let title = "A training step of a model in two parts".into();
    let parts = step.spans.iter().map(|(_, span)| span.category.clone()).collect();
    args.show.draw(title, &devices, parts, &step.spans)
}

/// Two steps of a network that has the weights of `original`; the first waits for memory.
fn train(original: &Network, devices: [LogicalDevice; 2], batch: i64) -> Result<Trained> {
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
    let peaks = devices.into_iter().zip(before);
    let peaks = peaks.map(|(device, before)| Ok((device, max_memory_allocated(device)? - before?)));
    Ok(Trained { network, step, peaks: peaks.collect::<Result<_>>()? })
}

/// All gradients in a row, on the CPU.
fn gradients(network: &Network) -> Result<Tensor> {
    let parts = [&network.module1, &network.module2].into_iter();
    let flat = parts
        .flat_map(|part| part.vs.trainable_variables())
        .map(|variable| Ok(variable.grad().f_to_device(tch::Device::Cpu)?.view([-1])));
    Ok(Tensor::f_cat(&flat.collect::<Result<Vec<_>>>()?, 0)?)
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
    use super::super::spans::{at_once, busy};
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
        let whole = train(&original, [first, first], BATCH).unwrap();
        let split = train(&original, [first, second], BATCH).unwrap();
        assert_eq!(split.step.logits, whole.step.logits);
        assert_eq!(split.step.loss, whole.step.loss);
        assert_eq!(gradients(&split.network).unwrap(), gradients(&whole.network).unwrap());
    }

    #[test]
    fn each_device_holds_its_part_and_the_second_labels_and_loss() {
        let [first, second] = two(32);
        let original = Network::new([first, first]).unwrap();
        let split = train(&original, [first, second], BATCH).unwrap();
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
        let peak = |devices: [_; 2]| train(&original, devices, BATCH).unwrap().peaks[&devices[0]];
        let whole = peak([first, first]);
        let halves = [peak([first, second]), peak([second, first])];
        // Weights and gradients are nearly all that there is.
        assert!(halves.iter().all(|half| *half < whole), "{halves:?} of {whole}");
    }

    #[test]
    fn one_device_works_at_a_time() {
        let [first, second] = two(36);
        let original = Network::new([first, first]).unwrap();
        let spans = train(&original, [first, second], BATCH).unwrap().step.spans;
        assert_eq!(at_once(&spans), 1);
        assert!([first, second].iter().all(|device| busy(&spans, *device) > Duration::ZERO));
    }
}
