//! What the table shows, in words, with the formula's numbers: `explain.jinja` is the text.

use super::formula;
use super::runs::{Measured, Runs};
use exhibit_kit::template;
use minijinja::value::Serde;
use minijinja::{Error, context};
use report::flag_value;

pub const TEXT: &str = include_str!("explain.jinja");

/// A paragraph for each method, and one on the article.
pub fn explain(measured: &[Measured], runs: &Runs<'_>) -> Result<String, Error> {
    let (batch_size, seq_len) = (runs.args.batch_size, runs.args.model.seq_len as usize);
    let vocab_size = runs.vocab_size as usize;
    let output = formula::output_bytes(batch_size, seq_len, vocab_size);
    let training = |found: &Measured| {
        let (devices, first) = (&found.devices, &found.devices[0]);
        // Without Adam's state, which only the device with the trained model holds.
        let peaks = devices.iter().map(|device| device.peak.saturating_sub(device.optimizer_state));
        context! {
            method => flag_value(&found.method),
            devices => Serde(devices),
            peaks => peaks.collect::<Vec<_>>(),
            buckets => first.others(),
            formula_holds => formula::holds(output, devices.len(), first.gradients),
            ranks_are_even => devices
                .iter()
                .all(|device| (device.live, device.peak) == (first.live, first.peak)),
        }
    };
    let numbers = context! {
        batch_size,
        seq_len,
        vocab_size,
        output,
        surplus => formula::surplus(output, runs.args.devices.len()),
        trainings => measured.iter().map(training).collect::<Vec<_>>(),
    };
    template::environment()?.render_str(TEXT, numbers)
}
