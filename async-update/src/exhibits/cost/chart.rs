//! The cost of an update over the number of ranks, as an SVG file.

use super::{Measured, RANKS};
use exhibit_kit::plot::{self, Axis, Lines, Scale, Series};
use report::thousands;
use tch_parallel::Result;

/// Both axes are logarithmic: straight lines are powers of N.
pub fn svg(found: &Measured) -> Result<String> {
    // In the order of the link's predictions.
    let names = ["server", "ring", "tree", "halving-doubling", "hierarchical"];
    let predicted = names.iter().enumerate().map(|(index, name)| {
        let point = |&ranks: &usize| {
            let seconds = found.link.predictions(ranks, found.per_node, found.bytes as f64)[index]?;
            Some((ranks as f64, seconds * 1e3))
        };
        Series { name: name.to_string(), points: RANKS.iter().filter_map(point).collect() }
    });
    let measured =
        ["server", "ring", "c10d"].iter().zip(found.updates).map(|(name, seconds)| Series {
            name: format!("{name}, measured"),
            points: vec![(found.ranks as f64, seconds * 1e3)],
        });
    plot::lines(&Lines {
        title: format!("One synchronous update of {} bytes", thousands(found.bytes)),
        x: Axis { title: "ranks".into(), scale: Scale::Log },
        y: Axis { title: "time (ms)".into(), scale: Scale::Log },
        series: predicted.chain(measured).collect(),
    })
}
