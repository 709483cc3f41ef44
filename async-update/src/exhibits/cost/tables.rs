//! Measured and predicted times in the terminal.

use super::fit::Point;
use super::measure::Updates;
use super::model::{Link, parameter_server_messages, ring_traffic};
use super::{Job, RANKS};
use report::{Column, table, thousands};

/// The times of messages, and the line through them.
pub fn messages(points: &[Point], link: &Link) -> String {
    let columns = ["bytes", "measured (ms)", "α + βn (ms)"].map(Column::Right);
    let rows: Vec<_> = points
        .iter()
        .map(|&(bytes, seconds)| {
            vec![thousands(bytes as usize), ms(seconds), ms(link.message(bytes))]
        })
        .collect();
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
        vec![
            thousands(ranks),
            ms(link.parameter_server(ranks, bytes)),
            ms(link.ring(ranks, bytes)),
            ms(link.tree(ranks, bytes)),
            ms(link.halving_doubling(ranks, bytes)),
            link.hierarchical_ring(ranks, job.per_node, bytes).map_or("-".into(), ms),
        ]
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
pub fn comparison(link: &Link, job: &Job, updates: &Updates) -> String {
    let bytes = job.bytes as f64;
    let (server, ring) = (link.parameter_server(job.ranks, bytes), link.ring(job.ranks, bytes));
    let columns =
        [Column::Left("method"), Column::Right("predicted (ms)"), Column::Right("measured (ms)")];
    let rows = [
        ("sync-ps, the parameter server", server, updates.parameter_server),
        ("ring", ring, updates.ring),
        ("sync-allreduce, c10d's: with gloo a ring", ring, updates.all_reduce),
    ];
    let rows: Vec<_> = rows
        .iter()
        .map(|(method, predicted, measured)| {
            vec![method.to_string(), ms(*predicted), ms(*measured)]
        })
        .collect();
    format!("The same with {} ranks, measured\n{}", job.ranks, table(&columns, &rows))
}

fn ms(seconds: f64) -> String {
    format!("{:.3}", seconds * 1e3)
}
