//! Efficiencies that others have published, and what the model says of them.

use crate::model::*;
use crate::network::{Algorithm, Link, Network as Wires};
use crate::step::{Work, step};
use anyhow::Result;
use exhibit_kit::template;
use minijinja::context;
use minijinja::value::Serde;
use serde::Serialize;

/// What is fitted to all rows at once: nothing belongs to a single one.
#[derive(Debug, Clone, Copy)]
pub struct Fitted {
    /// Seconds of a message between hosts.
    pub latency: f64,
    /// The mean delay of a rank, as a part of its computing.
    pub delay: f64,
    /// What a step costs on a GPU besides its samples, in samples. ResNet-50 in 16 bits only, where the batch of
    /// a rank is not the same in the runs that are compared.
    pub overhead: f64,
}

pub const FITTED: Fitted = Fitted { latency: 10e-6, delay: 0.02, overhead: 30.0 };

/// Runs that are alike except for the number of ranks.
struct Series {
    name: &'static str,
    source: &'static str,
    network: &'static Network,
    bytes_per_parameter: f64,
    /// Whether the exchange overlaps with the backward pass.
    overlaps: bool,
    wires: fn(f64) -> Wires,
    /// Samples of a rank, and what it does of them in a second.
    batch: f64,
    speed: f64,
    /// The ranks whose speed that is, and to which efficiencies relate.
    base: usize,
    /// Ranks, their batch if it is another, and the published efficiency.
    runs: &'static [(usize, f64, f64)],
}

fn wires(per_host: usize, inside: f64, between: f64, algorithm: Algorithm, latency: f64) -> Wires {
    Wires {
        ranks_per_host: per_host,
        inside: Link { latency: 5e-6, bandwidth: inside },
        between: Link { latency, bandwidth: between },
        algorithm,
    }
}

const DLPERF: &str = "DLPerf 2020";
const HOROVOD: &str = "Horovod 2018";
const GOYAL: &str = "Goyal 2017";
const MLPERF: &str = "MLPerf 0.7";

// 8 V100 with NVLink and one port of 100 Gb/s.
const V100: fn(f64) -> Wires = |latency| wires(8, 130e9, 12.5e9, Algorithm::Ring, latency);
// 4 P100 and one port of 25 Gb/s.
const P100: fn(f64) -> Wires = |latency| wires(4, 10e9, 3.125e9, Algorithm::Ring, latency);
// 8 P100 with NVLink and one port of 50 Gb/s.
const BIG_BASIN: fn(f64) -> Wires =
    |latency| wires(8, 20e9, 6.25e9, Algorithm::Hierarchical, latency);
// 16 V100 with NVSwitch and 8 ports of 100 Gb/s; 8 A100 and 8 ports of 200 Gb/s.
const DGX_2H: fn(f64) -> Wires = |latency| wires(16, 130e9, 100e9, Algorithm::Tree, latency);
const DGX_A100: fn(f64) -> Wires = |latency| wires(8, 230e9, 200e9, Algorithm::Tree, latency);

/// ImageNet's images, by which times of epochs become speeds.
const IMAGES: f64 = 1_281_167.0;

impl Series {
    const fn dlperf(
        name: &'static str,
        network: &'static Network,
        batch: f64,
        speed: f64,
        runs: &'static [(usize, f64, f64)],
    ) -> Series {
        Series {
            name,
            source: DLPERF,
            network,
            bytes_per_parameter: 4.0,
            // For BERT, NVIDIA's script sets a bucket larger than the model.
            overlaps: matches!(name.as_bytes()[0], b'R'),
            wires: V100,
            batch,
            speed,
            base: 1,
            runs,
        }
    }

    const fn horovod(
        network: &'static Network,
        speed: f64,
        runs: &'static [(usize, f64, f64)],
    ) -> Series {
        let name = network.name;
        let resnet = Series::dlperf(name, network, 64.0, speed, runs);
        Series { source: HOROVOD, overlaps: true, wires: P100, ..resnet }
    }

    const fn mlperf(
        name: &'static str,
        wires: fn(f64) -> Wires,
        base: usize,
        batch: f64,
        seconds: f64,
        runs: &'static [(usize, f64, f64)],
    ) -> Series {
        let speed = 4.0 * IMAGES / seconds / base as f64;
        let resnet = Series::dlperf(name, &RESNET50, batch, speed, runs);
        Series { source: MLPERF, bytes_per_parameter: 2.0, wires, base, ..resnet }
    }

    /// The speed of a rank among so many, in terms of that of the base.
    fn efficiency(&self, fitted: Fitted, ranks: usize, batch: f64) -> f64 {
        let buckets = match self.overlaps {
            true => self.network.buckets(self.bytes_per_parameter),
            false => self.network.one_bucket(self.bytes_per_parameter),
        };
        let wires = (self.wires)(fitted.latency);
        let seconds = |batch: f64, ranks| {
            let cost = match batch == self.batch && self.base == 1 {
                true => batch,
                false => (batch + fitted.overhead) * self.batch / (self.batch + fitted.overhead),
            };
            let compute = cost / self.speed;
            let work = Work { compute, buckets: &buckets, network: &wires, delay: fitted.delay };
            step(&work, ranks).total()
        };
        batch / self.batch * seconds(self.batch, self.base) / seconds(batch, ranks)
    }
}

static SERIES: [Series; 12] = [
    Series::dlperf(
        "ResNet-50, f32",
        &RESNET50,
        128.0,
        367.29,
        &[(8, 128.0, 98.3), (16, 128.0, 97.3), (32, 128.0, 92.9)],
    ),
    Series::dlperf(
        "ResNet-50, AMP",
        &RESNET50,
        256.0,
        802.9,
        &[(8, 256.0, 95.8), (16, 256.0, 93.4), (32, 256.0, 87.8)],
    ),
    Series::dlperf(
        "BERT-base, f32",
        &BERT_BASE,
        32.0,
        119.6,
        &[(8, 32.0, 96.3), (16, 32.0, 78.4), (32, 32.0, 75.4)],
    ),
    Series::dlperf(
        "BERT-base, f32",
        &BERT_BASE,
        48.0,
        121.94,
        &[(8, 48.0, 95.1), (16, 48.0, 81.2), (32, 48.0, 77.9)],
    ),
    Series::dlperf(
        "BERT-base, AMP",
        &BERT_BASE,
        64.0,
        444.51,
        &[(8, 64.0, 91.4), (16, 64.0, 69.4), (32, 64.0, 65.6)],
    ),
    Series::dlperf(
        "BERT-base, AMP",
        &BERT_BASE,
        96.0,
        462.35,
        &[(8, 96.0, 88.9), (16, 96.0, 73.3), (32, 96.0, 70.0)],
    ),
    Series::horovod(&INCEPTION_V3, 142.0, &[(128, 64.0, 90.0), (512, 64.0, 90.0)]),
    Series::horovod(&RESNET101, 103.6, &[(128, 64.0, 90.0), (512, 64.0, 90.0)]),
    Series::horovod(&VGG16, 154.0, &[(128, 64.0, 79.0), (512, 64.0, 68.0)]),
    Series {
        source: GOYAL,
        wires: BIG_BASIN,
        base: 8,
        ..Series::dlperf(
            "ResNet-50, f32",
            &RESNET50,
            32.0,
            167.0,
            &[(256, 32.0, 90.0), (352, 32.0, 89.3)],
        )
    },
    Series::mlperf("ResNet-50, V100", DGX_2H, 16, 208.0, 204.55, &[(512, 65.0, 78.0)]),
    Series::mlperf(
        "ResNet-50, A100",
        DGX_A100,
        8,
        408.0,
        229.5,
        &[(16, 204.0, 82.8), (768, 45.0, 57.9)],
    ),
];

#[derive(Debug, Serialize)]
struct Row {
    name: &'static str,
    source: &'static str,
    batch: f64,
    ranks: usize,
    published: f64,
    model: f64,
}

fn rows(fitted: Fitted) -> Vec<Row> {
    let of_series = |series: &'static Series| {
        series.runs.iter().map(move |&(ranks, batch, published)| Row {
            name: series.name,
            source: series.source,
            batch,
            ranks,
            published,
            model: 100.0 * series.efficiency(fitted, ranks, batch),
        })
    };
    SERIES.iter().flat_map(of_series).collect()
}

/// The root of the mean square of the differences, in points.
fn off(rows: &[Row]) -> f64 {
    let squares = rows.iter().map(|row| (row.model - row.published).powi(2));
    (squares.sum::<f64>() / rows.len() as f64).sqrt()
}

/// Prints all rows.
pub fn run() -> Result<()> {
    let rows = rows(FITTED);
    let within = rows.iter().filter(|row| (row.model - row.published).abs() <= 5.0).count();
    let holes = context! { rows => Serde(&rows), within, off => off(&rows) };
    Ok(template::print(&template::environment()?, include_str!("published.jinja"), holes)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Round numbers, one step of which in any direction fits no better.
    #[test]
    fn the_fitted_constants_fit_best() {
        let Fitted { latency, delay, overhead } = FITTED;
        let least = off(&rows(FITTED));
        for sign in [-1.0, 1.0] {
            for other in [
                Fitted { latency: latency + sign * 5e-6, ..FITTED },
                Fitted { delay: delay + sign * 0.005, ..FITTED },
                Fitted { overhead: overhead + sign * 10.0, ..FITTED },
            ] {
                assert!(off(&rows(other)) > least, "{other:?} fits better than {FITTED:?}");
            }
        }
    }
}
