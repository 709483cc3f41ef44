//! Measured and predicted times in the terminal.

use super::fit::Point;
use super::model::{Link, parameter_server_messages, ring_traffic};
use super::{Job, RANKS};
use report::{Column, table, thousands};

/// The times of messages, and the line through them.
pub fn messages(points: &[Point], link: &Link) -> String {
    let columns = ["bytes", "measured (ms)", "α + βn (ms)"].map(Column::Right);
    let row = |&(bytes, seconds): &Point| {
        vec![thousands(bytes as usize), ms(seconds), ms(link.message(bytes))]
    };
    let rows: Vec<_> = points.iter().map(row).collect();
    let off = |&(bytes, seconds): &Point| (link.message(bytes) / seconds - 1.0).abs();
    let furthest = points.iter().map(off).fold(0.0, f64::max);
    format!(
        "A message between ranks 0 and 1\n{}\
         α = {:.3} µs, β = {:.3} ns a byte ({:.3} GB/s); at most {:.0} % from a measured time\n",
        table(&columns, &rows),
        link.latency * 1e6,
        link.per_byte * 1e9,
        1e-9 / link.per_byte,
        100.0 * furthest
    )
}

/// The article's formulas, which count bytes only.
pub fn traffic() -> String {
    let columns = ["N", "server", "each of the ring"].map(Column::Right);
    let row = |&ranks: &usize| {
        let (server, ring) = (parameter_server_messages(ranks), ring_traffic(ranks));
        vec![thousands(ranks), format!("{server}"), format!("{ring:.4}")]
    };
    format!(
        "Bytes that an update takes through the busiest rank, in units of the model's size K\n{}",
        table(&columns, &RANKS.iter().map(row).collect::<Vec<_>>())
    )
}

/// What an update costs with ever more ranks.
pub fn predictions(link: &Link, job: &Job) -> String {
    let columns = ["N", "server", "ring", "tree", "halving-doubling", "hierarchical ring"];
    let bytes = job.bytes as f64;
    let row = |&ranks: &usize| {
        let predictions = link.predictions(ranks, job.per_node, bytes);
        let cells = predictions.map(|seconds| seconds.map_or("-".into(), ms));
        [&[thousands(ranks)], &cells[..]].concat()
    };
    let rows: Vec<_> = RANKS.iter().map(row).collect();
    let most = RANKS[RANKS.len() - 1];
    let overtakes = match link.tree_overtakes_ring(bytes, most) {
        Some(ranks) => format!(
            "From {ranks} ranks on a tree is faster than the ring, {} ms to {}: 2(N - 1) latencies alone are {} ms.",
            ms(link.tree(ranks, bytes)),
            ms(link.ring(ranks, bytes)),
            ms(2.0 * (ranks as f64 - 1.0) * link.latency)
        ),
        None => format!("Up to {} ranks the tree does not overtake the ring.", thousands(most)),
    };
    format!(
        "One synchronous update of K = {} bytes, predicted, in ms; nodes of {} in the hierarchical ring\n{}{overtakes}\n",
        thousands(job.bytes),
        job.per_node,
        table(&columns.map(Column::Right), &rows)
    )
}

/// Predictions beside what was measured.
pub fn comparison(link: &Link, job: &Job, updates: [f64; 3]) -> String {
    let bytes = job.bytes as f64;
    let (server, ring) = (link.parameter_server(job.ranks, bytes), link.ring(job.ranks, bytes));
    let columns =
        [Column::Left("method"), Column::Right("predicted (ms)"), Column::Right("measured (ms)")];
    let predicted = [
        ("sync-ps, the parameter server", server),
        ("ring", ring),
        ("sync-allreduce, c10d's: with gloo a ring", ring),
    ];
    let row = |((method, predicted), measured): ((&str, f64), f64)| {
        vec![method.into(), ms(predicted), ms(measured)]
    };
    let rows: Vec<_> = predicted.into_iter().zip(updates).map(row).collect();
    format!("The same with {} ranks, measured\n{}", job.ranks, table(&columns, &rows))
}

fn ms(seconds: f64) -> String {
    format!("{:.3}", seconds * 1e3)
}
