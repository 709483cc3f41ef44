//! The speed-up of a training step on several devices, with the loss on one of them or on all.

use super::check_batch;
use crate::models::{CLASSES, FEATURES, classifier};
use anyhow::{Result, ensure};
use report::{Column, Meter, milliseconds, plot, table};
use std::path::PathBuf;
use std::thread::available_parallelism;
use std::time::Duration;
use tch::Tensor;
use tch::nn::VarStore;
use tch_parallel::Devices;
use tch_parallel::checkpoint::check_destination;
use tch_parallel::data_parallel::{DataParallel, DataParallelCriterion, DataParallelModel};
use tch_parallel::optim::{Optimizer, Sgd, SgdOptions};

/// Time a training step on 1, 2 and 4 devices, with the loss on one of them or on all.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  dp-basic speedup                            1, 2 and 4 replicas, a thread for each
  dp-basic speedup --devices cuda             the same on GPUs
  dp-basic speedup --steps 50 --svg bars.svg  steadier times, and a picture

The batch is the same for all, so each of k replicas computes 1/k of it. Logical devices share the
cores of this machine: more replicas than cores gain nothing.")]
pub struct Args {
    /// Devices: cpu:N for N logical devices, or a list such as cuda:0,cuda:1; times the first 1, 2, 4 and 8.
    #[arg(long, default_value = "cpu:4")]
    devices: String,
    /// Time N steps, and print the median.
    #[arg(long, value_name = "N", default_value_t = 10)]
    steps: usize,
    /// Batch size, for all devices together.
    #[arg(long, default_value_t = 1024)]
    batch: i64,
    /// Draw the times as a bar chart to this file.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

/// The median times of a step with this number of replicas.
struct Row {
    replicas: usize,
    /// With the loss on the first device, and with a loss on every device.
    times: [Duration; 2],
}

pub fn run(args: &Args) -> Result<()> {
    let devices: Devices = args.devices.parse()?;
    ensure!(args.steps > 0, "--steps is 0, but must be at least 1: nothing is timed otherwise");
    check_batch(args.batch)?;
    if let Some(path) = &args.svg {
        check_destination(path)?;
    }
    // With more threads a single replica would use all cores.
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
        report::save(path, &bars(&rows)?)?;
    }
    Ok(())
}

/// Times all variants in turn, so that other load on the machine affects all of them alike.
fn time(devices: &Devices, args: &Args) -> Result<Vec<Row>> {
    let inputs = Tensor::rand([args.batch, FEATURES], tch::kind::FLOAT_CPU);
    let labels = Tensor::arange(args.batch, tch::kind::INT64_CPU).remainder(CLASSES);
    let batch = [devices.first().copy_of(&inputs)?, devices.first().copy_of(&labels)?];

    let counts: Vec<_> = [1, 2, 4, 8].into_iter().filter(|count| *count <= devices.len()).collect();
    let mut variants = Vec::new();
    for count in &counts {
        let devices = Devices::new(devices.iter().take(*count))?;
        variants.push([loss_on_one(&devices)?, loss_on_every(&devices)?]);
    }
    let mut times = vec![[Vec::new(), Vec::new()]; counts.len()];
    let mut meter = Meter::new(devices);
    // The first round allocates memory and starts threads, and does not count.
    for round in 0..=args.steps {
        for (step, times) in variants.iter_mut().flatten().zip(times.iter_mut().flatten()) {
            meter.begin_step()?;
            step(&batch)?;
            let time = meter.end_step()?;
            if round > 0 {
                times.push(time);
            }
        }
    }
    let rows = counts.into_iter().zip(times);
    Ok(rows.map(|(replicas, times)| Row { replicas, times: times.map(median) }).collect())
}

/// A training step on inputs and labels.
type Step = Box<dyn FnMut(&[Tensor; 2]) -> Result<()>>;

/// DataParallel, with the loss of the gathered outputs.
fn loss_on_one(devices: &Devices) -> Result<Step> {
    let vs = VarStore::new(devices.first().into());
    let model = DataParallel::new(&vs, devices, classifier)?;
    let mut optimizer = Sgd::new(&vs, SgdOptions::default())?;
    Ok(Box::new(move |[inputs, labels]| {
        let loss = model.f_forward_t(inputs, true)?.cross_entropy_for_logits(labels);
        optimizer.zero_grad()?;
        model.backward(&loss)?;
        Ok(optimizer.step()?)
    }))
}

/// DataParallelModel and DataParallelCriterion, with a loss on every device.
fn loss_on_every(devices: &Devices) -> Result<Step> {
    let vs = VarStore::new(devices.first().into());
    let model = DataParallelModel::new(&vs, devices, classifier)?;
    let criterion = DataParallelCriterion::new(|logits: &Tensor, labels: &Tensor| {
        logits.cross_entropy_for_logits(labels)
    });
    let mut optimizer = Sgd::new(&vs, SgdOptions::default())?;
    Ok(Box::new(move |[inputs, labels]| {
        let logits = model.f_forward_t(inputs, true)?;
        let loss = criterion.forward(logits, labels.shallow_clone())?;
        optimizer.zero_grad()?;
        loss.backward()?;
        Ok(optimizer.step()?)
    }))
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
        for time in row.times {
            cells.extend([milliseconds(time), format!("{:.2}", speed_up(rows, time))]);
        }
        cells
    };
    table(&columns, &rows.iter().map(cells).collect::<Vec<_>>())
}

/// The speed-up over one replica with the loss after gathering.
fn speed_up(rows: &[Row], time: Duration) -> f64 {
    let one = rows.first().map_or(Duration::ZERO, |row| row.times[0]);
    one.as_secs_f64() / time.as_secs_f64()
}

fn bars(rows: &[Row]) -> Result<String> {
    let groups = rows.iter().map(|row| plot::Group {
        name: match row.replicas {
            1 => "1 replica".into(),
            count => format!("{count} replicas"),
        },
        values: row.times.map(|time| vec![1e3 * time.as_secs_f64()]).to_vec(),
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
        let row = |replicas, times: [u64; 2]| {
            let times = times.map(Duration::from_millis);
            Row { replicas, times }
        };
        let text = print(&[row(1, [100, 80]), row(2, [50, 40])]);
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
