//! Thousands of ranks: weak and strong scaling, and when a method pays.

use crate::cluster::{Algorithm, Cluster, Link};
use crate::model::{Bucket, GPT, Network, RESNET_50};
use crate::published::{FITTED, INSIDE};
use crate::step::{Step, Work, step};
use anyhow::Result;
use exhibit_kit::plot::{self, Lines, PlotArgs, Scale, Series};
use exhibit_kit::template;
use minijinja::context;

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
pub fn cluster(between: f64) -> Cluster {
    Cluster {
        ranks_per_host: 8,
        inside: Link { latency: INSIDE, bandwidth: 350e9 },
        between: Link { latency: FITTED.latency, bandwidth: between },
        algorithm: Algorithm::Tree,
    }
}

/// 8 ports of 400 Gb/s for a host, one of 100, one of 10, and one of 1.
const BANDWIDTHS: [(&str, f64); 4] =
    [("3.2 Tb/s", 400e9), ("100 Gb/s", 12.5e9), ("10 Gb/s", 1.25e9), ("1 Gb/s", 0.125e9)];

/// Seconds that a rank takes for this many tokens of GPT, at 400 Tflop/s.
fn gpt(tokens: f64) -> f64 {
    GPT.seconds(tokens, 400e12)
}

/// Seconds that a rank takes for this many images; 2,500 per second for large batches.
fn resnet(images: f64) -> f64 {
    (images + FITTED.overhead) / 2500.0
}

const TOKENS: f64 = 16_384.0;

struct Curve {
    name: &'static str,
    buckets: Vec<Bucket>,
    cluster: Cluster,
    /// Seconds that a rank takes for this many samples.
    seconds: fn(f64) -> f64,
    /// Of a rank among 8.
    samples: f64,
    /// Whether more ranks share the samples of 8, instead of each having as many.
    is_strong: bool,
}

impl Curve {
    /// How many times as much is done as by 8 ranks.
    fn speed_up(&self, ranks: usize) -> f64 {
        let share = |ranks: usize| if self.is_strong { 8.0 / ranks as f64 } else { 1.0 };
        let seconds = |ranks: usize| {
            let compute = (self.seconds)(self.samples * share(ranks));
            let Curve { buckets, cluster, .. } = self;
            step(&Work { compute, buckets, cluster, delay: FITTED.delay }, ranks).total()
        };
        ranks as f64 / 8.0 * share(ranks) * seconds(8) / seconds(ranks)
    }
}

fn curves() -> [Curve; 5] {
    let curve = |name, network: Network, seconds, samples| {
        let buckets = network.buckets(4.0);
        Curve { name, buckets, cluster: cluster(400e9), seconds, samples, is_strong: false }
    };
    [
        curve("weak, ResNet-50", RESNET_50, resnet, 256.0),
        curve("weak, GPT", GPT, gpt, TOKENS),
        Curve { cluster: cluster(12.5e9), ..curve("weak, GPT, 100 Gb/s", GPT, gpt, TOKENS) },
        Curve { is_strong: true, ..curve("strong, ResNet-50", RESNET_50, resnet, 4096.0) },
        Curve { is_strong: true, ..curve("strong, GPT", GPT, gpt, 32.0 * TOKENS) },
    ]
}

/// A way to spend less on the exchange, and its step of GPT among 1,024 ranks on such a cluster.
type Method = (&'static str, fn(Cluster) -> Step);

const AMONG: usize = 1024;

fn ddp(cluster: Cluster, bytes_per_parameter: f64) -> Step {
    let buckets = GPT.buckets(bytes_per_parameter);
    let cluster = &cluster;
    step(&Work { compute: gpt(TOKENS), buckets: &buckets, cluster, delay: FITTED.delay }, AMONG)
}

/// The same with one exchange for many batches. Delays are taken to last: they do not average out.
fn repeated(times: f64, Step { compute, late, exposed }: Step) -> Step {
    Step { compute: times * compute, late: times * late, exposed }
}

const METHODS: [Method; 6] = [
    ("DDP, f32", |cluster| ddp(cluster, 4.0)),
    ("bf16 compression", |cluster| ddp(cluster, 2.0)),
    ("PowerSGD, 1/100 of the bytes", |cluster| {
        let step = ddp(cluster, 0.04);
        // The matrices that it multiplies.
        Step { late: step.late + 0.05 * step.compute, ..step }
    }),
    ("8 batches per step (no_sync)", |cluster| repeated(8.0, ddp(cluster, 4.0))),
    ("FullyShard, bf16", |cluster| {
        let plain = ddp(cluster, 0.0);
        let units = 24.0;
        // Two all-gathers and a reduce-scatter, each half of an all-reduce; the first hides behind nothing.
        let unit = cluster.all_reduce(AMONG, 2.0 * GPT.parameters() / units) / 2.0;
        Step { exposed: unit + (3.0 * units * unit - plain.compute).max(0.0), ..plain }
    }),
    ("DiLoCo, every 100 batches", |cluster| {
        let exposed = cluster.all_reduce(AMONG, 4.0 * GPT.parameters());
        repeated(100.0, Step { exposed, ..ddp(cluster, 0.0) })
    }),
];

/// Prints the tables, and draws the curves if that is asked for.
pub fn run(args: &Args) -> Result<()> {
    args.plot.check(&[PLOT])?;
    let speed_up = |curve: &Curve| {
        let values = RANKS.map(|ranks| 800.0 / ranks as f64 * curve.speed_up(ranks));
        context! { name => curve.name, values }
    };
    let scaling: Vec<_> = curves().iter().map(speed_up).collect();
    let pays = METHODS.map(|(name, of)| {
        let efficiency = |(_, between)| 100.0 * of(cluster(between)).efficiency();
        context! { name, values => BANDWIDTHS.map(efficiency) }
    });
    let bandwidths = BANDWIDTHS.map(|(name, _)| name);
    let holes = context! { RANKS, bandwidths, scaling, pays };
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
    let title = "Speed-up with the number of ranks";
    let series = [ideal].into_iter().chain(curves().iter().map(series)).collect();
    plot::lines(&Lines::new(title, ["ranks", "speed-up"], Scale::Log, series))
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
                let cluster = cluster(1e9 * gigabits / 8.0);
                let compute = network.seconds(samples, 1e12 * tflops);
                let buckets = &network.buckets(bytes);
                let work = Work { compute, buckets, cluster: &cluster, delay: FITTED.delay };
                let Step { compute, late, exposed } = step(&work, ranks);
                let name = network.name;
                writeln!(report, "{name}: {samples} {tflops} {gigabits} {bytes} {ranks} = {compute:?} {late:?} {exposed:?}").unwrap();
            }
        }
        insta::assert_snapshot!(report);
    }
}
