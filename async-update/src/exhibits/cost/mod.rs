//! What a message costs, and what an update costs with more ranks than there are at hand.
//!
//! | file | what it holds |
//! |---|---|
//! | `measure` | times of messages and updates between the ranks of this job |
//! | `fit` | α and β from the times of messages |
//! | `model` | the cost of an update by each method, from α and β |
//! | `tables` | all of it in the terminal |
//! | `chart` | the cost over the number of ranks, as an SVG file |

mod chart;
mod fit;
mod measure;
mod model;
mod tables;

use crate::args::MeetingArgs;
use crate::exhibits::check_plots;
use crate::link::Link;
use crate::model::PARAMETERS;
use anyhow::{Result, ensure};
use report::{parse_size, plot};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use tch_parallel::distributed::init_process_group;

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
    /// Draw the predictions as cost.svg in this directory.
    #[arg(long, value_name = "DIR")]
    plot: Option<PathBuf>,
    #[command(flatten)]
    meeting: MeetingArgs,
}

/// The file that --plot makes.
const PLOT: &str = "cost.svg";

pub fn run(args: &Args) -> Result<()> {
    let bytes = args.bytes.unwrap_or(PARAMETERS * size_of::<f32>());
    ensure!(
        bytes.is_multiple_of(size_of::<f32>()),
        "--bytes is {bytes}, but must be a multiple of 4, the size of a parameter"
    );
    if let Some(directory) = &args.plot {
        check_plots(directory, &[PLOT])?;
    }
    let group = init_process_group(args.meeting.process_group())?;
    let link = Link::between_ranks(group.clone())?;
    let messages = measure::messages(&group, &link)?;
    let updates = measure::updates(&group, bytes)?;
    if group.rank() != 0 {
        return Ok(());
    }
    // ANCHOR: predict
    let link = fit::line(&messages);
    let job = Job { ranks: group.world_size(), bytes, per_node: args.per_node.get() };
    println!("{}", tables::messages(&messages, &link));
    println!("{}", tables::traffic());
    println!("{}", tables::predictions(&link, &job));
    print!("{}", tables::comparison(&link, &job, updates));
    // ANCHOR_END: predict
    if let Some(directory) = &args.plot {
        plot::save(directory.join(PLOT), &chart::svg(&link, &job, updates)?)?;
    }
    Ok(())
}

/// Whose updates are predicted, and measured.
struct Job {
    /// How many ranks have measured.
    ranks: usize,
    /// The size of the model, K.
    bytes: usize,
    /// How many ranks a node has in the hierarchical ring.
    per_node: usize,
}

/// For how many ranks costs are predicted: the article's five, the tests' and those of clusters.
const RANKS: [usize; 11] = [2, 4, 5, 8, 16, 40, 64, 256, 1000, 4096, 10_000];
