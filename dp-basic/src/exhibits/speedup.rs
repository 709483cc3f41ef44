//! The speed-up of a training step on several devices, with the loss on one of them or on all.

use super::synthetic_batch;
use crate::models::{CLASSES, FEATURES, classifier};
use anyhow::Result;
use clap::value_parser;
use exhibit_kit::{plot, template};
use minijinja::context;
use report::{Timing, positive, print, println};
use std::thread::available_parallelism;
use tch::{Tensor, nn::VarStore};
use tch_parallel::data_parallel::{DataParallel, DataParallelCriterion, DataParallelModel};
use tch_parallel::{Devices, Event, optim::Optimizer, optim::Sgd, optim::SgdOptions};

/// Time a training step on 1, 2 and 4 devices, with the loss on one of them or on all.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  dp-basic speedup                                      1, 2 and 4 replicas, a thread for each
  dp-basic speedup --steps 50 --svg bars.svg            steadier times, and a picture
  cargo xtask run dp-basic -- speedup --devices cuda    the same on GPUs

The batch is the same for all, so each of k replicas computes 1/k of it. Logical devices share the
cores of this machine: more replicas than cores gain nothing.")]
pub struct Args {
    /// Devices: 4xcpu for four logical devices, or a list such as cuda:0,cuda:1; times the first 1, 2, 4 and 8.
    #[arg(long, default_value = "4xcpu")]
    devices: Devices,
    /// Time N steps, and print the median.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = positive())]
    steps: usize,
    /// Batch size, for all devices together.
    #[arg(long, default_value_t = 1024, value_parser = value_parser!(i64).range(1..))]
    batch: i64,
    #[command(flatten)]
    svg: plot::SvgArgs,
}

/// A number of replicas, and the median seconds of a step: with the loss on the first device, and on every device.
type Row = (usize, [f64; 2]);

pub fn run(args: &Args) -> Result<()> {
    args.svg.check()?;
    // With more threads a single replica would use all cores.
    tch::set_num_threads(1);
    tch::manual_seed(0);
    let cores = available_parallelism().map_or(1, usize::from);
    let Args { batch, steps, .. } = args;
    println!(
        "{cores} cores, a batch of {batch}, a thread for each replica, the median of {steps} steps\n"
    );
    let rows = time(args)?;
    print!("{}", table(&rows)?);
    Ok(args.svg.save(|| bars(&rows))?)
}

/// Times all variants in turn, so that other load on the machine affects all of them alike.
fn time(args: &Args) -> Result<Vec<Row>> {
    let (inputs, labels) = synthetic_batch(args.batch, FEATURES, CLASSES);
    let (all, home) = (&args.devices, args.devices.first());
    let batch = [home.copy_of(&inputs)?, home.copy_of(&labels)?];

    let mut rows = Vec::new();
    for replicas in [1, 2, 4, 8].into_iter().filter(|count| *count <= all.len()) {
        let devices = Devices::new(all.iter().take(replicas))?;
        let steps = [loss_on_one(&devices)?, loss_on_every(&devices)?];
        rows.push((replicas, steps.map(|step| (step, Timing::default()))));
    }
    // The first round allocates memory and starts threads, and does not count.
    for round in 0..=args.steps {
        for (step, timing) in rows.iter_mut().flat_map(|(_, variants)| variants) {
            // What a step does on other devices ends before the first device goes on.
            let begun = Event::record(home)?;
            step(&batch)?;
            let ended = Event::record(home)?;
            if round > 0 {
                timing.step_between(begun, ended)?;
            }
        }
    }
    let median = |(_, timing): (Step, Timing)| timing.summary().step_seconds_median.unwrap_or(0.0);
    Ok(rows.into_iter().map(|(replicas, variants)| (replicas, variants.map(median))).collect())
}

/// A training step on inputs and labels.
type Step = Box<dyn FnMut(&[Tensor; 2]) -> Result<()>>;

/// DataParallel, with the loss of the gathered outputs.
fn loss_on_one(devices: &Devices) -> Result<Step> {
    let vs = VarStore::new(devices.first().into());
    let model = DataParallel::new(classifier, &vs, devices)?;
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
    let model = DataParallelModel::new(classifier, &vs, devices)?;
    let criterion = DataParallelCriterion::new(Tensor::cross_entropy_for_logits);
    let mut optimizer = Sgd::new(&vs, SgdOptions::default())?;
    Ok(Box::new(move |[inputs, labels]| {
        let loss = criterion.forward(model.f_forward_t(inputs, true)?, labels.shallow_clone())?;
        optimizer.zero_grad()?;
        loss.backward()?;
        Ok(optimizer.step()?)
    }))
}

/// The speed-up is over one replica with the loss on one device.
fn table(rows: &[Row]) -> Result<String> {
    let rows = rows.iter().map(|(replicas, [one, every])| (*replicas, *one, *every));
    let holes = context! { rows => rows.collect::<Vec<_>>() };
    Ok(template::environment()?.render_str(include_str!("speedup.jinja"), holes)?)
}

fn bars(rows: &[Row]) -> tch_parallel::Result<String> {
    let groups = rows.iter().map(|(replicas, seconds)| {
        let name = format!("{replicas} replica{}", if *replicas == 1 { "" } else { "s" });
        (name, seconds.map(|seconds| 1e3 * seconds).to_vec())
    });
    let (title, axis) = ("Time of a training step", "time of a step");
    let members = ["loss on one device", "loss on every device"];
    plot::bars(&plot::Bars::undivided(title, axis, "ms", &members, groups))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_speed_up_is_over_one_replica_with_the_loss_behind_it() {
        let text = table(&[(1, [0.1, 0.08]), (2, [0.05, 0.04])]).unwrap();
        let lines: Vec<_> =
            text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>()).collect();
        assert_eq!(lines[1], ["1", "100.000", "1.00", "80.000", "1.25"]);
        assert_eq!(lines[2], ["2", "50.000", "2.00", "40.000", "2.50"]);
    }
}
