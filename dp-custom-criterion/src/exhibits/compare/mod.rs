//! Every method in turn, and what they need: the article's comparison.
//!
//! | file | what it holds |
//! |---|---|
//! | this one | runs all methods, and prints memory, time and idleness of each device, in tables and in words; `compare.jinja`: its text |
//! | `args` | [`CompareArgs`]: the flags |
//! | `runs` | [`Runs`]: a training of some steps with a method, and what its metrics say |
//! | `formula` | how much more memory the device that gathers the outputs needs |
//! | `budget` | the largest batch that a device's memory allows; `budget.jinja`: its table |

mod args;
mod budget;
mod formula;
mod runs;

use crate::args::method::Method;
use anyhow::Result;
use clap::ValueEnum;
use exhibit_kit::{comparison::memory_bars, plot, template};
use minijinja::{Value, context, value::Serde};
use report::{DeviceReport, flag_value, print};
use runs::{Measured, Runs};

pub use args::CompareArgs;

const TEXT: &str = include_str!("compare.jinja");

pub fn compare(args: &CompareArgs) -> Result<()> {
    args.svg.check()?;
    let runs = Runs::new(args)?;
    let run = |method: &Method| runs.run(*method, args.batch_size, args.steps);
    let measured = Method::value_variants().iter().map(run).collect::<Result<Vec<_>>>()?;
    print!("{}", template::environment()?.render_str(TEXT, numbers(&measured, &runs))?);
    let uses = ["Adam's state", "buckets of gradients", "activations, outputs and their gradients"];
    let trainings = measured.iter().map(|found| (flag_value(&found.method), &*found.devices));
    args.svg.save(|| plot::bars(&memory_bars(uses, &trainings.collect::<Vec<_>>())))?;
    if let Some(budget) = args.budget {
        print!("\n{}", budget::table_of(&runs, &measured, budget)?);
    }
    Ok(())
}

fn numbers(measured: &[Measured], runs: &Runs<'_>) -> Value {
    let (batch_size, seq_len) = (runs.args.batch_size, runs.args.model.seq_len as usize);
    let (vocab_size, count) = (runs.vocab_size as usize, runs.args.devices.len());
    let output = formula::output_bytes(batch_size, seq_len, vocab_size);
    let gradients = measured.iter().flat_map(|found| &found.devices).map(|found| found.gradients);
    let device = |found: &DeviceReport| {
        context! {
            others => found.others(),
            activations => found.activations(),
            // Only the device with the trained model holds the state.
            peak_without_state => found.peak.saturating_sub(found.optimizer_state),
            bytes => vec![found.live, found.peak],
            ..Value::from(Serde(found))
        }
    };
    let training = |found: &Measured| {
        context! {
            method => flag_value(&found.method),
            devices => found.devices.iter().map(device).collect::<Vec<_>>(),
            step_seconds => found.step_seconds,
        }
    };
    context! {
        batch_size,
        seq_len,
        vocab_size,
        output,
        surplus => formula::surplus(output, count),
        formula_holds => formula::holds(output, count, gradients.max().unwrap_or(0)),
        trainings => measured.iter().map(training).collect::<Vec<_>>(),
    }
}
