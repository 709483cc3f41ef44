//! Every method in turn, and what they need: the article's comparison.
//!
//! | file | what it holds |
//! |---|---|
//! | this one | runs all methods, and prints memory, time and idleness of each device |
//! | `args` | [`CompareArgs`]: the flags |
//! | `runs` | [`Runs`]: a training of some steps with a method, and what its metrics say |
//! | `explain` | the same in words, with the formula's numbers; `explain.jinja`: these words |
//! | `formula` | how much more memory the device that gathers the outputs needs |
//! | `budget` | the largest batch that a device's memory allows |

mod args;
mod budget;
mod explain;
mod formula;
mod runs;

use crate::args::Method;
use anyhow::Result;
use clap::ValueEnum;
use report::comparison::{Cell, device_table, memory_bars};
use report::{Column, plot, size};
use runs::{Measured, Runs};

pub use args::CompareArgs;

/// Trains with every method and prints what they need.
pub fn compare(args: &CompareArgs) -> Result<()> {
    let runs = Runs::new(args)?;
    let run = |method: &Method| runs.run(*method, args.batch_size, args.steps);
    let measured = Method::value_variants().iter().map(run).collect::<Result<Vec<_>>>()?;
    print!("{}", table_of(&measured));
    println!("\n{}", explain::explain(&measured, &runs)?);
    if let Some(path) = &args.svg {
        let names =
            ["Adam's state", "buckets of gradients", "activations, outputs and their gradients"];
        plot::save(path, &plot::bars(&memory_bars(names, &measured))?)?;
    }
    if let Some(budget) = args.budget {
        print!("\n{}", budget::table_of(&runs, &measured, budget)?);
    }
    Ok(())
}

/// A row for each method and device.
fn table_of(measured: &[Measured]) -> String {
    let columns: [(Column, Cell<Measured>); 11] = [
        (Column::Left("method"), Cell::Training(|found| found.method.to_string())),
        (Column::Left("device"), Cell::Device(|device| device.device.clone())),
        (Column::Right("between steps"), Cell::Device(|device| size(device.live))),
        (Column::Right("parameters"), Cell::Device(|device| size(device.parameters))),
        (Column::Right("gradients"), Cell::Device(|device| size(device.gradients))),
        (Column::Right("Adam's state"), Cell::Device(|device| size(device.optimizer_state))),
        (Column::Right("buckets"), Cell::Device(|device| size(device.others()))),
        (Column::Right("at the peak"), Cell::Device(|device| size(device.peak))),
        (Column::Right("activations, outputs"), Cell::Device(|device| size(device.activations()))),
        (Column::Right("s/step"), Cell::Training(|found| format!("{:.2}", found.step_seconds))),
        (
            Column::Right("idle"),
            Cell::Device(|device| format!("{:.0} %", 100.0 * device.idle_share)),
        ),
    ];
    device_table(&columns, measured)
}
