//! Efficiencies that others have published, and what the model says of them.

use crate::cluster::{Algorithm, Cluster, Link};
use crate::model::NETWORKS;
use crate::step::{Work, step};
use anyhow::{Context, Result};
use exhibit_kit::template;
use minijinja::{context, value::Serde};
use serde::{Deserialize, Serialize};

/// What is fitted to all rows at once: nothing belongs to a single one.
#[derive(Debug, Clone, Copy)]
pub struct Fitted {
    /// Seconds of a message between hosts.
    pub latency: f64,
    /// The mean delay of a rank, as a part of its computing.
    pub delay: f64,
    /// What a step of ResNet-50 costs on a GPU besides its images, in images. It counts only where the runs that
    /// are compared have different batches per rank.
    pub overhead: f64,
}

pub const FITTED: Fitted = Fitted { latency: 10e-6, delay: 0.02, overhead: 30.0 };

/// Within a host. It hardly matters here, and is not fitted.
pub const INSIDE: f64 = 5e-6;

/// Runs that are alike except for the number of ranks and their batch.
#[derive(Deserialize)]
struct Series {
    network: String,
    numbers: String,
    source: String,
    bytes_per_parameter: f64,
    /// Whether the exchange overlaps with the backward pass.
    overlaps: bool,
    ranks_per_host: usize,
    /// Of a rank within its host, and of a host, in GB/s.
    inside: f64,
    between: f64,
    algorithm: Algorithm,
    /// The batch of a rank and its samples per second, among this many ranks. Efficiencies relate to these.
    samples: f64,
    speed: f64,
    base: usize,
    /// Ranks, the batch of each, and the published efficiency.
    runs: Vec<(usize, f64, f64)>,
}

impl Series {
    /// The speed of a rank among this many, in per cent of that of the base.
    fn efficiency(&self, fitted: Fitted, ranks: usize, samples: f64) -> Result<f64> {
        let network = NETWORKS.iter().find(|network| network.name == self.network);
        let network = network.with_context(|| format!("no network {}", self.network))?;
        let buckets = match self.overlaps {
            true => network.buckets(self.bytes_per_parameter),
            false => network.one_bucket(self.bytes_per_parameter),
        };
        let cluster = Cluster {
            ranks_per_host: self.ranks_per_host,
            inside: Link { latency: INSIDE, bandwidth: 1e9 * self.inside },
            between: Link { latency: fitted.latency, bandwidth: 1e9 * self.between },
            algorithm: self.algorithm,
        };
        let seconds = |samples: f64, ranks| {
            let batch = (samples + fitted.overhead) / (self.samples + fitted.overhead);
            let compute = batch * self.samples / self.speed;
            let work = Work { compute, buckets: &buckets, cluster: &cluster, delay: fitted.delay };
            step(&work, ranks).total()
        };
        let faster = seconds(self.samples, self.base) / seconds(samples, ranks);
        Ok(100.0 * samples / self.samples * faster)
    }
}

#[derive(Debug, Serialize)]
struct Row {
    /// The number of its series.
    curve: usize,
    name: String,
    source: String,
    samples: f64,
    ranks: usize,
    published: f64,
    model: f64,
}

fn rows(fitted: Fitted) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    let all: Vec<Series> = serde_json::from_str(include_str!("published.json"))?;
    for (curve, series) in all.iter().enumerate() {
        for &(ranks, samples, published) in &series.runs {
            let name = format!("{}, {}", series.network, series.numbers);
            let model = series.efficiency(fitted, ranks, samples)?;
            let source = series.source.clone();
            rows.push(Row { curve, name, source, samples, ranks, published, model });
        }
    }
    Ok(rows)
}

/// The root of the mean square of the differences, in points.
fn off(rows: &[Row]) -> f64 {
    let squares = rows.iter().map(|row| (row.model - row.published).powi(2));
    (squares.sum::<f64>() / rows.len() as f64).sqrt()
}

pub fn run() -> Result<()> {
    let rows = rows(FITTED)?;
    let is_within = |row: &Row| (row.model - row.published).abs() <= 5.0;
    let within = rows.iter().filter(|row| is_within(row)).count();
    let curves: Vec<_> = rows.chunk_by(|a, b| a.curve == b.curve).collect();
    let wholly = curves.iter().filter(|rows| rows.iter().all(is_within)).count();
    let holes = context! {
        rows => Serde(&rows), within, wholly, curves => curves.len(), off => off(&rows)
    };
    Ok(template::print(&template::environment()?, include_str!("published.jinja"), holes)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Round numbers, one step of which in any direction fits no better.
    #[test]
    fn the_fitted_constants_fit_best() {
        let Fitted { latency, delay, overhead } = FITTED;
        let least = off(&rows(FITTED).unwrap());
        for sign in [-1.0, 1.0] {
            for other in [
                Fitted { latency: latency + sign * 5e-6, ..FITTED },
                Fitted { delay: delay + sign * 0.005, ..FITTED },
                Fitted { overhead: overhead + sign * 10.0, ..FITTED },
            ] {
                let found = off(&rows(other).unwrap());
                assert!(found > least, "{other:?} fits better than {FITTED:?}");
            }
        }
    }
}
