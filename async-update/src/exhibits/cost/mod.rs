//! What a message costs, and what an update costs with more ranks than there are at hand.
//!
//! | file | what it holds |
//! |---|---|
//! | `measure` | times of messages and updates between the ranks of this job |
//! | `fit` | α and β from the times of messages |
//! | `model` | the cost of an update by each method, from α and β |
//! | `cost.jinja` | all of it in the terminal |

mod fit;
mod measure;
mod model;

use crate::{args::MeetingArgs, link, model::PARAMETERS};
use anyhow::{Result, ensure};
use exhibit_kit::plot::{self, Lines, PlotArgs, Scale, Series};
use exhibit_kit::template;
use fit::Point;
use minijinja::{context, value::Serde};
use model::Link;
use report::{parse_size, thousands};
use serde::Serialize;
use std::num::NonZeroUsize;
use tch_parallel::{Error, distributed::init_process_group};

/// Measure what a message costs, and predict what an update costs with up to 10,000 ranks.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  launch -n 4 async-update cost                             for the model that the methods train
  launch -n 4 async-update cost --bytes 100MiB --per-node 4 --plot .   and cost.svg")]
pub struct Args {
    /// Size of the model, such as 64MiB; by default that of the model that the methods train.
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    bytes: Option<usize>,
    /// Ranks per node in the hierarchical ring.
    #[arg(long, default_value = "8")]
    per_node: NonZeroUsize,
    #[command(flatten)]
    plot: PlotArgs,
    #[command(flatten)]
    meeting: MeetingArgs,
}

const PLOT: &str = "cost.svg";

pub fn run(args: &Args) -> Result<()> {
    let bytes = args.bytes.unwrap_or(PARAMETERS * size_of::<f32>());
    let expected = "a multiple of 4, the size of a parameter";
    ensure!(bytes.is_multiple_of(size_of::<f32>()), Error::argument("--bytes", bytes, expected));
    args.plot.check(&[PLOT])?;
    let group = init_process_group(args.meeting.process_group())?;
    let connection = link::Link::between_ranks(group.clone())?;
    let messages = measure::messages(&group, &connection)?;
    let iteration = measure::iteration(&group, &connection, bytes)?;
    let updates = measure::updates(&group, bytes)?;
    if group.rank() != 0 {
        return Ok(());
    }
    let (ranks, per_node, link) = (group.world_size(), args.per_node.get(), fit::line(&messages));
    let transport = group.transport().to_string();
    let measured =
        Measured { ranks, transport, bytes, per_node, messages, link, iteration, updates };

    let off = |&(bytes, seconds): &Point| (link.message(bytes) / seconds - 1.0).abs();
    let mut text = template::environment()?;
    text.add_function("parameter_server_messages", model::parameter_server_messages);
    text.add_function("ring_traffic", model::ring_traffic);
    text.add_function("message", move |bytes| link.message(bytes));
    text.add_function("predictions", move |ranks| link.predictions(ranks, per_node, bytes as f64));
    let holes = context! {
        RANKS,
        measured => Serde(&measured),
        gigabytes_per_second => 1e-9 / link.per_byte,
        furthest => measured.messages.iter().map(off).fold(0.0, f64::max),
        tree_overtakes_ring => link.tree_overtakes_ring(bytes as f64, RANKS[RANKS.len() - 1]),
    };
    template::print(&text, include_str!("cost.jinja"), holes)?;
    Ok(args.plot.save(PLOT, || picture(&measured))?)
}

#[derive(Debug, Serialize)]
struct Measured {
    ranks: usize,
    /// How c10d's collectives reach the others.
    transport: String,
    /// The size of the model, K.
    bytes: usize,
    per_node: usize,
    messages: Vec<Point>,
    /// Fitted to the messages.
    link: Link,
    /// Seconds for an iteration of the ring, by all ranks at once.
    iteration: f64,
    /// Seconds for an update by `sync-ps`, `ring` and `sync-allreduce`.
    updates: [f64; 3],
}

/// For how many ranks costs are predicted: the article's five, the tests' and those of clusters.
const RANKS: [usize; 11] = [2, 4, 5, 8, 16, 40, 64, 256, 1000, 4096, 10_000];

/// The cost of an update over the number of ranks. Both axes are logarithmic: straight lines are powers of N.
fn picture(found: &Measured) -> tch_parallel::Result<String> {
    // In the order of the link's predictions.
    let names = ["server", "ring", "tree", "halving-doubling", "hierarchical"];
    let predicted = names.iter().enumerate().map(|(index, name)| {
        let point = |&ranks: &usize| {
            let seconds = found.link.predictions(ranks, found.per_node, found.bytes as f64)[index]?;
            Some((ranks as f64, seconds * 1e3))
        };
        Series { name: name.to_string(), points: RANKS.iter().filter_map(point).collect() }
    });
    let measured = ["server", "ring", "c10d"].iter().zip(found.updates).map(|(name, seconds)| {
        let points = vec![(found.ranks as f64, seconds * 1e3)];
        Series { name: format!("{name}, measured"), points }
    });
    let title = format!("One synchronous update of {} bytes", thousands(found.bytes));
    let series = predicted.chain(measured).collect();
    plot::lines(&Lines::new(&title, ["ranks", "time (ms)"], Scale::Log, series))
}
