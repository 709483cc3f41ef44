//! The article's figures of the ring, in the terminal: who sends what, and who holds what.

use super::page;
use super::symbolic::{self, Contents, Pass, beginning, letter};
use crate::ring::{Half, schedule};
use anyhow::Result;
use clap::builder::RangedU64ValueParser;
use report::plot;
use report::{Column, table};
use std::path::PathBuf;
use tch_parallel::checkpoint::check_destination;

/// Show how the chunks of a gradient travel around a ring of GPUs.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  async-update ring show                          five GPUs, as in the article
  async-update ring show --n 4 --page ring.html   and as an animation")]
pub struct Args {
    /// Number of GPUs in the ring, from 2 to 26.
    // Two make the smallest ring, and the alphabet has names for 26 chunks.
    #[arg(long, default_value_t = 5,
          value_parser = RangedU64ValueParser::<usize>::new().range(2..=26))]
    n: usize,
    /// Write the same as an animation to this HTML file.
    #[arg(long, value_name = "FILE")]
    page: Option<PathBuf>,
}

pub fn run(args: &Args) -> Result<()> {
    if let Some(path) = &args.page {
        check_destination(path)?;
    }
    // ANCHOR: symbolic
    let schedules: Vec<_> = (0..args.n).map(|rank| schedule(rank, args.n)).collect();
    let passes = symbolic::run(&schedules);
    // ANCHOR_END: symbolic
    print!("{}", text(&passes));
    if let Some(path) = &args.page {
        plot::save(path, &page::html(&passes))?;
    }
    Ok(())
}

fn text(passes: &[Pass]) -> String {
    let ranks = passes.first().map_or(0, |pass| pass.iterations.len());
    let mut text = format!(
        "Each of {ranks} GPUs cuts its gradient into {ranks} chunks. b1 is chunk b of GPU 1, and b(0,1) \
         the sum of b0 and b1.\n* has just been received.\n\nAt the beginning\n{}",
        contents(&beginning(ranks), None)
    );
    for pass in passes {
        let Pass { number, after, .. } = pass;
        let half = match pass.half {
            Half::ScatterReduce => "scatter-reduce",
            Half::AllGather => "all-gather",
        };
        if *number == 0 {
            text += &format!("\nThe first iteration of {half}\n{}", first_iteration(pass));
        }
        let iteration = number + 1;
        let heading = format!("{half}, iteration {iteration} of {}", ranks - 1);
        text += &format!("\nAfter {heading}\n{}", contents(after, Some(pass)));
        if pass.half == Half::ScatterReduce && iteration == ranks - 1 {
            text += &format!("\nComplete after {half}: {}\n", complete(after));
        }
    }
    text
}

/// What each GPU sends and receives.
fn first_iteration(pass: &Pass) -> String {
    let ranks = pass.iterations.len();
    let columns = ["GPU", "sends", "to", "receives", "from"].map(Column::Left);
    let chunk = |number| format!("chunk {number} ({})", letter(number));
    let rows = pass.iterations.iter().enumerate().map(|(rank, iteration)| {
        let (right, left) = ((rank + 1) % ranks, (rank + ranks - 1) % ranks);
        let (send, recv) = (chunk(iteration.send), chunk(iteration.recv));
        vec![rank.to_string(), send, format!("GPU {right}"), recv, format!("GPU {left}")]
    });
    table(&columns, &rows.collect::<Vec<_>>())
}

/// What every GPU holds, with a star at what it has received in this pass.
fn contents(contents: &Contents, pass: Option<&Pass>) -> String {
    let ranks = contents.len();
    let columns: Vec<_> = ["GPU"].into_iter().chain((0..ranks).map(letter)).collect();
    let columns: Vec<_> = columns.into_iter().map(Column::Left).collect();
    let rows = contents.iter().enumerate().map(|(rank, own)| {
        let cells = own.iter().enumerate().map(|(chunk, sum)| {
            let is_new = pass.is_some_and(|pass| pass.iterations[rank].recv == chunk);
            format!("{}{sum}{}", letter(chunk), if is_new { "*" } else { "" })
        });
        [rank.to_string()].into_iter().chain(cells).collect()
    });
    table(&columns, &rows.collect::<Vec<_>>())
}

/// Which chunks each GPU has from everybody.
fn complete(contents: &Contents) -> String {
    let ranks = contents.len();
    let of_rank = |(rank, own): (usize, &Vec<symbolic::Sum>)| {
        let chunks = (0..ranks).filter(|&chunk| own[chunk].is_complete(ranks)).map(letter);
        format!("GPU {rank} {}", chunks.collect::<Vec<_>>().join(" "))
    };
    contents.iter().enumerate().map(of_rank).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(ranks: usize) -> String {
        let schedules: Vec<_> = (0..ranks).map(|rank| schedule(rank, ranks)).collect();
        text(&symbolic::run(&schedules))
    }

    #[test]
    fn the_first_iteration_is_the_articles_table() {
        let text = shown(5);
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
        assert!(shown(5).lines().any(|line| line == expected));
    }
}
