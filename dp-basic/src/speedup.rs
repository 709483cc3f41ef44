//! How much faster a step is on several devices, with the loss on one of them or on all.

use crate::models::{CLASSES, FEATURES, classifier};
use anyhow::{Result, ensure};
use report::plot;
use report::{Column, milliseconds, table};
use std::path::PathBuf;
use std::thread::available_parallelism;
use std::time::{Duration, Instant};
use tch::nn::{Sequential, VarStore};
use tch::{Cuda, Tensor};
use tch_parallel::checkpoint::check_destination;
use tch_parallel::data_parallel::{DataParallel, DataParallelCriterion, DataParallelModel};
use tch_parallel::optim::{Optimizer, Sgd, SgdOptions};
use tch_parallel::{Devices, LogicalDevice};

/// Time a training step on 1, 2 and 4 devices, with the loss on one of them or on all.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  dp-basic speedup                            1, 2 and 4 replicas, a thread for each
  dp-basic speedup --devices cuda             the same of GPUs
  dp-basic speedup --steps 50 --svg bars.svg  steadier times, and a picture

The batch is the same for all, so each of k replicas computes 1/k of it. Logical devices share the
cores of this machine: more replicas than cores gain nothing.")]
pub struct Args {
    /// cpu:N for N logical devices, or a list such as cuda:0,cuda:1; 1, 2, 4 and 8 are used.
    #[arg(long, default_value = "cpu:4")]
    devices: String,
    /// Steps to time, of which the one in the middle counts.
    #[arg(long, default_value_t = 10)]
    steps: usize,
    /// Rows of the whole batch.
    #[arg(long, default_value_t = 1024)]
    batch: i64,
    /// Draw the times as bars.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

/// The time of a step with so many replicas.
struct Row {
    replicas: usize,
    /// Outputs are gathered, and the loss is computed on the first device.
    gathered: Duration,
    /// The loss is computed on every device.
    parallel: Duration,
}

pub fn run(args: &Args) -> Result<()> {
    let devices: Devices = args.devices.parse()?;
    ensure!(args.steps > 0, "--steps is 0, but must be at least 1: nothing is timed otherwise");
    ensure!(
        args.batch > 0,
        "--batch is {}, but must be at least 1: a row is needed to train",
        args.batch
    );
    if let Some(path) = &args.svg {
        check_destination(path)?;
    }
    // More would let one replica have all cores.
    tch::set_num_threads(1);
    tch::manual_seed(0);
    println!(
        "{} cores, a batch of {}, a thread for each replica, the median of {} steps\n",
        available_parallelism().map_or(1, usize::from),
        args.batch,
        args.steps
    );
    let rows = time(&devices, args)?;
    print!("{}", print(&rows));
    if let Some(path) = &args.svg {
        plot::save(path, &bars(&rows)?)?;
    }
    Ok(())
}

/// Times all variants in turn, so that what disturbs the machine for a while disturbs all of them.
fn time(devices: &Devices, args: &Args) -> Result<Vec<Row>> {
    let first = devices.first();
    let inputs = Tensor::rand([args.batch, FEATURES], tch::kind::FLOAT_CPU);
    let labels = Tensor::arange(args.batch, tch::kind::INT64_CPU).remainder(CLASSES);
    let (inputs, labels) = (first.copy_of(&inputs)?, first.copy_of(&labels)?);

    let counts = [1, 2, 4, 8].into_iter().filter(|count| *count <= devices.len());
    let mut variants = Vec::new();
    for count in counts {
        let devices = Devices::new(devices.iter().take(count))?;
        variants.push((Gathered::new(&devices)?, Parallel::new(&devices)?, Vec::new(), Vec::new()));
    }
    // The first round waits for memory and threads.
    for round in 0..=args.steps {
        for (gathered, parallel, gathered_times, parallel_times) in &mut variants {
            let times = (
                timed(devices, || gathered.step(&inputs, &labels))?,
                timed(devices, || parallel.step(&inputs, &labels))?,
            );
            if round > 0 {
                gathered_times.push(times.0);
                parallel_times.push(times.1);
            }
        }
    }
    Ok(variants
        .into_iter()
        .map(|(gathered, _, gathered_times, parallel_times)| Row {
            replicas: gathered.model.devices().len(),
            gathered: median(gathered_times),
            parallel: median(parallel_times),
        })
        .collect())
}

/// DataParallel, and the loss of what was gathered.
struct Gathered {
    model: DataParallel<Sequential>,
    optimizer: Sgd,
}

impl Gathered {
    fn new(devices: &Devices) -> Result<Self> {
        let vs = VarStore::new(devices.first().into());
        let model = DataParallel::new(&vs, devices, classifier)?;
        Ok(Gathered { model, optimizer: Sgd::new(&vs, SgdOptions::default())? })
    }

    fn step(&mut self, inputs: &Tensor, labels: &Tensor) -> Result<()> {
        let loss = self.model.f_forward_t(inputs, true)?.cross_entropy_for_logits(labels);
        self.optimizer.zero_grad()?;
        self.model.backward(&loss)?;
        Ok(self.optimizer.step()?)
    }
}

/// A loss on every device.
struct Parallel {
    model: DataParallelModel<Sequential>,
    criterion: DataParallelCriterion<Tensor, Tensor>,
    optimizer: Sgd,
}

impl Parallel {
    fn new(devices: &Devices) -> Result<Self> {
        let vs = VarStore::new(devices.first().into());
        let model = DataParallelModel::new(&vs, devices, classifier)?;
        let criterion = DataParallelCriterion::new(|logits: &Tensor, labels: &Tensor| {
            logits.cross_entropy_for_logits(labels)
        });
        Ok(Parallel { model, criterion, optimizer: Sgd::new(&vs, SgdOptions::default())? })
    }

    fn step(&mut self, inputs: &Tensor, labels: &Tensor) -> Result<()> {
        let logits = self.model.f_forward_t(inputs, true)?;
        let loss = self.criterion.forward(logits, labels.shallow_clone())?;
        self.optimizer.zero_grad()?;
        loss.backward()?;
        Ok(self.optimizer.step()?)
    }
}

fn timed(devices: &Devices, step: impl FnOnce() -> Result<()>) -> Result<Duration> {
    let begun = Instant::now();
    step()?;
    for device in devices.iter() {
        if let LogicalDevice::Cuda(index) = device {
            // A GPU is only told what to do; it has not done it yet.
            Cuda::synchronize(index as i64);
        }
    }
    Ok(begun.elapsed())
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

fn print(rows: &[Row]) -> String {
    let columns = [
        Column::Right("replicas"),
        Column::Right("loss on one device, ms"),
        Column::Right("speed-up"),
        Column::Right("loss on every device, ms"),
        Column::Right("speed-up"),
    ];
    let cells = |row: &Row| {
        let mut cells = vec![row.replicas.to_string()];
        for time in [row.gathered, row.parallel] {
            cells.extend([milliseconds(time), format!("{:.2}", speed_up(rows, time))]);
        }
        cells
    };
    table(&columns, &rows.iter().map(cells).collect::<Vec<_>>())
}

/// How many times faster than one replica with the loss behind it.
fn speed_up(rows: &[Row], time: Duration) -> f64 {
    let one = rows.first().map_or(Duration::ZERO, |row| row.gathered);
    one.as_secs_f64() / time.as_secs_f64()
}

fn bars(rows: &[Row]) -> Result<String> {
    let groups = rows.iter().map(|row| plot::Group {
        name: match row.replicas {
            1 => "1 replica".into(),
            count => format!("{count} replicas"),
        },
        values: [row.gathered, row.parallel].map(|time| vec![1e3 * time.as_secs_f64()]).to_vec(),
    });
    Ok(plot::bars(&plot::Bars {
        title: "Time of a training step".into(),
        axis: "time of a step".into(),
        unit: plot::Unit::Other("ms".into()),
        parts: vec!["a step".into()],
        members: vec!["loss on one device".into(), "loss on every device".into()],
        groups: groups.collect(),
    })?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_speed_up_is_over_one_replica_with_the_loss_behind_it() {
        let row = |replicas, gathered, parallel| Row {
            replicas,
            gathered: Duration::from_millis(gathered),
            parallel: Duration::from_millis(parallel),
        };
        let text = print(&[row(1, 100, 80), row(2, 50, 40)]);
        let lines: Vec<_> =
            text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>()).collect();
        assert_eq!(lines[1], ["1", "100.000", "1.00", "80.000", "1.25"]);
        assert_eq!(lines[2], ["2", "50.000", "2.00", "40.000", "2.50"]);
    }

    #[test]
    fn the_median_is_the_time_in_the_middle() {
        let times = [9, 1, 5].map(Duration::from_secs).to_vec();
        assert_eq!(median(times), Duration::from_secs(5));
    }
}
