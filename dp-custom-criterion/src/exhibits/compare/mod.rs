//! Every method in turn, and what they need: the article's comparison.
//!
//! | file | what it holds |
//! |---|---|
//! | this one | runs all methods, and prints memory, time and idleness of each device |
//! | `args` | [`CompareArgs`]: the flags |
//! | `runs` | [`Runs`]: a training of some steps with a method, and what its metrics say |
//! | `explain` | the same in words, with the formula's numbers; `explain.jinja`: these words |
//! | `formula` | how much more memory the device that gathers the outputs needs |
//! | `budget` | the largest batch that a device's memory allows; `budget.jinja`: its table |

mod args;
mod budget;
mod explain;
mod formula;
mod runs;

use crate::args::method::Method;
use anyhow::Result;
use clap::ValueEnum;
use exhibit_kit::comparison::Cell::{self, Device, Training};
use exhibit_kit::comparison::{device_table, memory_bars};
use exhibit_kit::plot;
use report::Column::{self, Left, Right};
use report::{flag_value, print, size};
use runs::{Measured, Runs};

pub use args::CompareArgs;

/// Trains with every method and prints what they need.
pub fn compare(args: &CompareArgs) -> Result<()> {
    let runs = Runs::new(args)?;
    let run = |method: &Method| runs.run(*method, args.batch_size, args.steps);
    let measured = Method::value_variants().iter().map(run).collect::<Result<Vec<_>>>()?;
    print!("{}", tables_of(&measured));
    print!("\n{}", explain::explain(&measured, &runs)?);
    if let Some(path) = &args.svg {
        let names =
            ["Adam's state", "buckets of gradients", "activations, outputs and their gradients"];
        report::save(path, &plot::bars(&memory_bars(names, &measured))?)?;
    }
    if let Some(budget) = args.budget {
        print!("\n{}", budget::table_of(&runs, &measured, budget)?);
    }
    Ok(())
}

/// What stays between steps, a row for each method and device, and below it what a step takes.
fn tables_of(measured: &[Measured]) -> String {
    let between_steps: [(Column, Cell<Measured>); 5] = [
        (Right("between steps"), Device(|device| size(device.live))),
        (Right("parameters"), Device(|device| size(device.parameters))),
        (Right("gradients"), Device(|device| size(device.gradients))),
        (Right("Adam's state"), Device(|device| size(device.optimizer_state))),
        (Right("buckets"), Device(|device| size(device.others()))),
    ];
    let step: [(Column, Cell<Measured>); 4] = [
        (Right("at the peak"), Device(|device| size(device.peak))),
        (Right("activations, outputs"), Device(|device| size(device.activations()))),
        (Right("s/step"), Training(|found| format!("{:.2}", found.step_seconds))),
        (Right("idle"), Device(|device| format!("{:.0} %", 100.0 * device.idle_share))),
    ];
    let table = |columns: &[_]| {
        let names: [(Column, Cell<Measured>); 2] = [
            (Left("method"), Training(|found| flag_value(&found.method))),
            (Left("device"), Device(|device| device.device.clone())),
        ];
        device_table(&[&names, columns].concat(), measured)
    };
    format!("{}\n{}", table(&between_steps), table(&step))
}
