//! Every method in turn, and what they need: the article's comparison.
//!
//! | file | what it holds |
//! |---|---|
//! | `args` | [`CompareArgs`]: the flags |
//! | `runs` | [`Runs`]: a training of some steps with a method, and what its metrics say |
//! | `table` | memory, time and idleness of each device |
//! | `explain` | the same in words, with the formula's numbers |
//! | `formula` | by how much the device that gathers the outputs exceeds the others |
//! | `budget` | the largest batch that a device's memory allows |

mod args;
mod budget;
mod explain;
mod formula;
mod runs;
mod table;

use crate::args::Method;
use anyhow::Result;
use clap::ValueEnum;
use report::comparison::{Comparison, equal_share, memory_bars};
use report::plot;
use runs::Runs;

pub use args::CompareArgs;

/// Trains with every method and prints what they need.
pub fn compare(args: &CompareArgs) -> Result<()> {
    let comparison = Comparison::new(args.timeout)?;
    let batch_size = args.batch_size;
    equal_share(batch_size, &args.devices)?;
    let (corpus, vocab) = args.text.load()?;
    let options = args.model.options(&vocab)?;
    let runs = Runs::new(args, &comparison, corpus, &vocab)?;

    let mut measured = Vec::new();
    for method in Method::value_variants() {
        measured.push(runs.run(*method, batch_size, args.steps)?);
    }
    print!("{}", table::table_of(&measured));
    let sizes = explain::Sizes {
        batch_size,
        seq_len: args.model.seq_len(),
        vocab_size: options.vocab_size as usize,
    };
    print!("\n{}", explain::explain(&measured, sizes));
    if let Some(path) = &args.svg {
        let names =
            ["Adam's state", "buckets of gradients", "activations, outputs and their gradients"];
        plot::save(path, &plot::bars(&memory_bars(names, &measured))?)?;
    }
    if let Some(budget) = args.budget {
        let largest = measured
            .iter()
            .map(|known| budget::largest(&runs, known, budget))
            .collect::<Result<Vec<_>>>()?;
        print!("\n{}", budget::table_of(&largest, budget));
    }
    Ok(())
}
