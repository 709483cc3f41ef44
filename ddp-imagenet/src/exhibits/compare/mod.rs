//! PyramidNet trained with every method in turn, and what they need: the article's comparison.
//!
//! | file | what it holds |
//! |---|---|
//! | `args` | [`CompareArgs`]: the flags of the comparison |
//! | `runs` | a training of some batches in processes of its own, and what its metrics say |
//! | `table` | time, memory and utilisation of each device |
//! | `explain` | the same in words, beside the article's numbers |
//! | `charts` | the same as SVG files |

mod args;
mod charts;
mod explain;
mod runs;
mod table;

use super::train_cifar::{Method, OptimizerKind};
use anyhow::Result;
use report::comparison::{Comparison, paragraphs};
use runs::{Run, Runs};

pub use args::CompareArgs;

/// Trains with every method and prints what they need.
pub fn compare(args: &CompareArgs) -> Result<()> {
    let comparison = Comparison::new(args.timeout)?;
    let runs = Runs::new(args, &comparison)?;
    if let Some(directory) = &args.plot {
        charts::check_destination(directory)?;
    }
    let run = |method, optimizer| runs.run(Run { method, optimizer });
    // In the article's order. DataParallel comes with Adam as well: that is what the companion
    // repository runs there, where the article speaks of SGD (S4.47).
    let measured = [
        run(Method::Single, OptimizerKind::Sgd)?,
        run(Method::DataParallel, OptimizerKind::Sgd)?,
        run(Method::DataParallel, OptimizerKind::Adam)?,
        run(Method::Ddp, OptimizerKind::Sgd)?,
        run(Method::Apex, OptimizerKind::Sgd)?,
    ];
    print!("{}", table::table_of(&measured));
    print!("\n{}", paragraphs(&explain::explain(&measured)));
    if let Some(directory) = &args.plot {
        charts::save(directory, &measured)?;
    }
    Ok(())
}
