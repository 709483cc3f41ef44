//! The article's figures of the ring, in the terminal: who sends what, and who holds what.

use super::symbolic;
use crate::ring::schedule;
use anyhow::Result;
use clap::builder::RangedU64ValueParser;
use exhibit_kit::template;
use minijinja::{context, value::Serde};

/// Show how the chunks of a gradient travel around a ring of GPUs.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  async-update ring show         five GPUs, as in the article
  async-update ring show --n 4   four GPUs")]
pub struct Args {
    /// Number of GPUs in the ring, from 2 to 26.
    // Two make the smallest ring, and the alphabet has names for 26 chunks.
    #[arg(long, default_value_t = 5,
          value_parser = RangedU64ValueParser::<usize>::new().range(2..=26))]
    n: usize,
}

pub fn run(args: &Args) -> Result<()> {
    let ranks = args.n;
    // ANCHOR: symbolic
    let schedules: Vec<_> = (0..ranks).map(|rank| schedule(rank, ranks)).collect();
    let passes = symbolic::run(&schedules);
    // ANCHOR_END: symbolic
    let holes = context! { ranks, passes => Serde(passes) };
    Ok(template::print(&template::environment()?, include_str!("show.jinja"), holes)?)
}
