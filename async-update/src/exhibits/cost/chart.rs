//! The cost of an update over the number of ranks, as an SVG file.

use super::measure::Updates;
use super::model::Link;
use super::{Job, RANKS};
use report::plot::{self, Axis, Lines, Scale, Series};
use report::thousands;
use tch_parallel::Result;

/// Both axes are logarithmic: straight lines are powers of N.
pub fn svg(link: &Link, job: &Job, updates: &Updates) -> Result<String> {
    let bytes = job.bytes as f64;
    let predicted = |name: &str, cost: &dyn Fn(usize) -> Option<f64>| {
        let point = |&ranks: &usize| Some((ranks as f64, cost(ranks)? * 1e3));
        Series { name: name.into(), points: RANKS.iter().filter_map(point).collect() }
    };
    let measured = |name: &str, seconds: f64| Series {
        name: format!("{name}, measured"),
        points: vec![(job.ranks as f64, seconds * 1e3)],
    };
    plot::lines(&Lines {
        title: format!("One synchronous update of {} bytes", thousands(job.bytes)),
        x: Axis { title: "ranks".into(), scale: Scale::Log },
        y: Axis { title: "time (ms)".into(), scale: Scale::Log },
        series: vec![
            predicted("server", &|ranks| Some(link.parameter_server(ranks, bytes))),
            predicted("ring", &|ranks| Some(link.ring(ranks, bytes))),
            predicted("tree", &|ranks| Some(link.tree(ranks, bytes))),
            predicted("halving-doubling", &|ranks| Some(link.halving_doubling(ranks, bytes))),
            predicted("hierarchical", &|ranks| link.hierarchical_ring(ranks, job.per_node, bytes)),
            measured("server", updates.parameter_server),
            measured("ring", updates.ring),
            measured("c10d", updates.all_reduce),
        ],
    })
}
