//! The article's figures of the ring, in the terminal: who sends what, and who holds what.

use super::symbolic;
use crate::ring::schedule;
use anyhow::Result;
use clap::builder::RangedU64ValueParser;
use exhibit_kit::template;
use minijinja::context;
use minijinja::value::Serde;
use report::print;

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
    print!("{}", text(args.n)?);
    Ok(())
}

fn text(ranks: usize) -> Result<String> {
    // ANCHOR: symbolic
    let schedules: Vec<_> = (0..ranks).map(|rank| schedule(rank, ranks)).collect();
    let passes = symbolic::run(&schedules);
    // ANCHOR_END: symbolic
    let holes = context! { ranks, passes => Serde(passes) };
    Ok(template::environment()?.render_str(include_str!("show.jinja"), holes)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_iteration_is_the_articles_table() {
        let text = text(5).unwrap();
        for (gpu, (sends, receives)) in [(0, 4), (1, 0), (2, 1), (3, 2), (4, 3)].iter().enumerate()
        {
            let row = text.lines().find(|line| line.starts_with(&format!("{gpu}    chunk")));
            let words: Vec<_> = row.unwrap().split_whitespace().collect();
            assert_eq!((words[2], words[7]), (&*sends.to_string(), &*receives.to_string()));
        }
    }

    #[test]
    fn a_gpu_has_one_complete_chunk_after_scatter_reduce() {
        let expected = "Complete after scatter-reduce: GPU 0 b, GPU 1 c, GPU 2 d, GPU 3 e, GPU 4 a";
        assert!(text(5).unwrap().lines().any(|line| line == expected));
    }
}
