//! Thousands of ranks: weak and strong scaling, and when a method pays.

use crate::model::{Bucket, GPT, RESNET_50};
use crate::network::{Algorithm, Link, Network};
use crate::published::{FITTED, INSIDE};
use crate::step::{Step, Work, step};
use anyhow::Result;
use exhibit_kit::plot::{self, Lines, PlotArgs, Scale, Series};
use exhibit_kit::template;
use minijinja::{context, value::Serde};
use serde::Serialize;

/// Simulate thousands of ranks: weak and strong scaling, and when a method pays.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  scaling curves            as tables
  scaling curves --plot .   and as scaling.svg")]
pub struct Args {
    #[command(flatten)]
    plot: PlotArgs,
}

const PLOT: &str = "scaling.svg";
const RANKS: [usize; 6] = [8, 64, 512, 1024, 4096, 16_384];

/// Hosts of 8 accelerators, whose bandwidth between each other is this many bytes per second.
pub fn cluster(between: f64) -> Network {
    Network {
        ranks_per_host: 8,
        inside: Link { latency: INSIDE, bandwidth: 350e9 },
        between: Link { latency: FITTED.latency, bandwidth: between },
        algorithm: Algorithm::Tree,
    }
}

/// 8 ports of 400 Gb/s for a host, one of 100, one of 10, and one of 1.
const NETWORKS: [(&str, f64); 4] =
    [("3.2 Tb/s", 400e9), ("100 Gb/s", 12.5e9), ("10 Gb/s", 1.25e9), ("1 Gb/s", 0.125e9)];

/// Seconds of a rank for so many tokens of GPT, at 400 Tflop/s.
fn gpt(tokens: f64) -> f64 {
    GPT.seconds(tokens, 400e12)
}

/// Seconds of a rank for so many images, 2,500 a second if there are many.
fn resnet(images: f64) -> f64 {
    (images + FITTED.overhead) / 2500.0
}

const TOKENS: f64 = 16_384.0;

struct Curve {
    name: &'static str,
    buckets: Vec<Bucket>,
    network: Network,
    /// Seconds of computing among so many ranks.
    compute: fn(f64) -> f64,
    /// What a rank has to do among so many, relative to what it has among 8.
    share: fn(f64) -> f64,
}

impl Curve {
    /// How many times as much is done as by 8 ranks.
    fn speed_up(&self, ranks: usize) -> f64 {
        let seconds = |ranks: usize| {
            let compute = (self.compute)(ranks as f64);
            let Curve { buckets, network, .. } = self;
            step(&Work { compute, buckets, network, delay: FITTED.delay }, ranks).total()
        };
        let n = ranks as f64;
        n / 8.0 * (self.share)(n) * seconds(8) / seconds(ranks)
    }
}

fn curves() -> [Curve; 5] {
    let [fast, slow] = [cluster(400e9), cluster(12.5e9)];
    let gpts = || GPT.buckets(4.0);
    let weak =
        |name, buckets, network, compute| Curve { name, buckets, network, compute, share: |_| 1.0 };
    let strong =
        |name, buckets, compute| Curve { share: |n| 8.0 / n, ..weak(name, buckets, fast, compute) };
    [
        weak("weak, ResNet-50", RESNET_50.buckets(4.0), fast, |_| resnet(256.0)),
        weak("weak, GPT", gpts(), fast, |_| gpt(TOKENS)),
        weak("weak, GPT, 100 Gb/s", gpts(), slow, |_| gpt(TOKENS)),
        strong("strong, ResNet-50", RESNET_50.buckets(4.0), |n| resnet(32_768.0 / n)),
        strong("strong, GPT", gpts(), |n| gpt(256.0 * TOKENS / n)),
    ]
}

/// A way to spend less on the exchange, and its step of GPT among 1,024 ranks on such a network.
type Method = (&'static str, fn(Network) -> Step);

const AMONG: usize = 1024;

fn ddp(network: Network, bytes_per_parameter: f64) -> Step {
    let buckets = GPT.buckets(bytes_per_parameter);
    let network = &network;
    step(&Work { compute: gpt(TOKENS), buckets: &buckets, network, delay: FITTED.delay }, AMONG)
}

/// The same with one exchange for many batches. Delays are taken to last: they do not average out.
fn repeated(times: f64, Step { compute, late, exposed }: Step) -> Step {
    Step { compute: times * compute, late: times * late, exposed }
}

const METHODS: [Method; 6] = [
    ("DDP, f32", |network| ddp(network, 4.0)),
    ("bf16 compression", |network| ddp(network, 2.0)),
    ("PowerSGD, 1/100 of the bytes", |network| {
        let step = ddp(network, 0.04);
        // The matrices that it multiplies.
        Step { late: step.late + 0.05 * step.compute, ..step }
    }),
    ("8 batches a step (no_sync)", |network| repeated(8.0, ddp(network, 4.0))),
    ("FullyShard, bf16", |network| {
        let plain = ddp(network, 0.0);
        let units = 24.0;
        // Two all-gathers and a reduce-scatter, each half of an all-reduce; the first hides behind nothing.
        let unit = network.all_reduce(AMONG, 2.0 * GPT.parameters() / units) / 2.0;
        Step { exposed: unit + (3.0 * units * unit - plain.compute).max(0.0), ..plain }
    }),
    ("DiLoCo, every 100 batches", |network| {
        let exposed = network.all_reduce(AMONG, 4.0 * GPT.parameters());
        repeated(100.0, Step { exposed, ..ddp(network, 0.0) })
    }),
];

#[derive(Serialize)]
struct Row {
    name: &'static str,
    values: Vec<f64>,
}

/// Prints the tables, and draws the curves if that is asked for.
pub fn run(args: &Args) -> Result<()> {
    args.plot.check(&[PLOT])?;
    let speed_up = |curve: &Curve| Row {
        name: curve.name,
        values: RANKS.map(|ranks| 800.0 / ranks as f64 * curve.speed_up(ranks)).to_vec(),
    };
    let scaling: Vec<_> = curves().iter().map(speed_up).collect();
    let pays = METHODS.map(|(name, of)| {
        let efficiency = |(_, between)| 100.0 * of(cluster(between)).efficiency();
        Row { name, values: NETWORKS.map(efficiency).to_vec() }
    });
    let networks = NETWORKS.map(|(name, _)| name);
    let holes = context! { RANKS, networks, scaling => Serde(&scaling), pays => Serde(&pays) };
    template::print(&template::environment()?, include_str!("curves.jinja"), holes)?;
    Ok(args.plot.save(PLOT, picture)?)
}

fn picture() -> tch_parallel::Result<String> {
    let ranks = || (3..=14).map(|power| 1usize << power);
    let series = |curve: &Curve| Series {
        name: curve.name.into(),
        points: ranks().map(|n| (n as f64, 8.0 * curve.speed_up(n))).collect(),
    };
    let ideal =
        Series { name: "ideal".into(), points: ranks().map(|n| (n as f64, n as f64)).collect() };
    plot::lines(&Lines {
        title: "Speed-up with the number of ranks".into(),
        x: "ranks".into(),
        y: "speed-up".into(),
        scale: Scale::Log,
        series: [ideal].into_iter().chain(curves().iter().map(series)).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::NETWORKS;
    use std::fmt::Write;

    #[test]
    fn the_books_calculator_is_compared_with_these_steps() {
        let mut report = String::new();
        for network in &NETWORKS {
            for (samples, tflops, gigabits, bytes, ranks) in [
                (32.0, 10.0, 10.0, 4.0, 8),
                (256.0, 100.0, 100.0, 4.0, 64),
                (16_384.0, 400.0, 3200.0, 2.0, 4096),
            ] {
                let wires = cluster(1e9 * gigabits / 8.0);
                let compute = network.seconds(samples, 1e12 * tflops);
                let buckets = &network.buckets(bytes);
                let work = Work { compute, buckets, network: &wires, delay: FITTED.delay };
                let Step { compute, late, exposed } = step(&work, ranks);
                let name = network.name;
                writeln!(report, "{name}: {samples} {tflops} {gigabits} {bytes} {ranks} = {compute:?} {late:?} {exposed:?}").unwrap();
            }
        }
        insta::assert_snapshot!(report);
    }
}
