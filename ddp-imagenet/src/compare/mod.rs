//! PyramidNet trained with every method in turn, and what they need: the article's comparison.
//!
//! | file | what it holds |
//! |---|---|
//! | [`train`] | the trainings themselves, one file for each method |
//! | `method` | [`Method`]: what they are called |
//! | `args` | [`CompareArgs`]: the flags of the comparison |
//! | `runs` | a training of some batches in processes of its own, and what its metrics say |
//! | `table` | time, memory and utilisation of each device |
//! | `explain` | the same in words, beside the article's numbers |
//! | `charts` | the same as SVG files |

mod args;
mod charts;
mod explain;
mod method;
mod runs;
mod table;
pub mod train;

use anyhow::Result;
use report::comparison::{Comparison, paragraphs};
use runs::{RUNS, Runs};

pub use args::CompareArgs;
pub use method::Method;

/// Trains with every method and prints what they need.
pub fn compare(args: &CompareArgs) -> Result<()> {
    let comparison = Comparison::new(args.timeout)?;
    let runs = Runs::new(args, &comparison)?;
    if let Some(directory) = &args.plot {
        charts::check_destination(directory)?;
    }
    let mut measured = Vec::new();
    for run in RUNS {
        measured.push(runs.run(run)?);
    }
    print!("{}", table::table_of(&measured));
    print!("\n{}", paragraphs(&explain::explain(&measured)));
    if let Some(directory) = &args.plot {
        charts::save(directory, &measured)?;
    }
    Ok(())
}
