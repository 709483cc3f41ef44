//! What the table shows, in words, with the formula's numbers.

use super::formula;
use super::runs::Measured;
use crate::args::Method;
use report::DeviceReport;
use report::{size, thousands};

/// What the size of the output depends on.
#[derive(Debug, Clone, Copy)]
pub struct Sizes {
    /// Pairs in a batch, of all devices together.
    pub batch_size: usize,
    /// Tokens in a pair.
    pub seq_len: usize,
    /// Words of the vocabulary.
    pub vocab_size: usize,
}

/// A paragraph for each method.
pub fn explain(measured: &[Measured], sizes: Sizes) -> String {
    let Sizes { batch_size, seq_len, vocab_size } = sizes;
    let output = formula::output_bytes(batch_size, seq_len, vocab_size);
    let mut text = format!(
        "BERT's output for a batch, {batch_size} pairs x {seq_len} tokens x {vocab_size} words x 4 \
         bytes, takes {}.\n",
        size(output)
    );
    for Measured { method, devices, .. } in measured {
        text += &format!("\n{method}: ");
        text += &match method {
            Method::DataParallel => gathering(devices, 0, output),
            Method::OutputDevice => gathering(devices, 1, output),
            Method::CustomCriterion => balanced(devices),
            Method::Ddp => ranks(devices),
        };
        text += &idle(devices);
    }
    text + &article()
}

/// At the peak, without Adam's state, which is where the trained model is.
fn without_state(device: &DeviceReport) -> usize {
    device.peak.saturating_sub(device.optimizer_state)
}

fn gathering(devices: &[DeviceReport], gathers: usize, output: usize) -> String {
    let count = devices.len();
    let least = devices.iter().map(without_state).min().unwrap_or(0);
    let full = &devices[gathers];
    let mut text = format!(
        "{} needs {} more than the others, Adam's state left out.\n  It gathers the outputs of all, \
         copies them for the loss, and has their gradient:\n  3 x (1 - 1/{count}) x {} = {} by the \
         formula.\n",
        full.device,
        size(without_state(full) - least),
        size(output),
        size(formula::surplus(output, count)),
    );
    let gradients = devices[0].gradients;
    if !formula::holds(output, count, gradients) {
        text += &format!(
            "  It does not hold here, where the gradients of the parameters, {}, outweigh the \
             outputs.\n",
            size(gradients)
        );
    }
    text
}

fn balanced(devices: &[DeviceReport]) -> String {
    let needs = || devices.iter().map(without_state);
    let (least, most) = (needs().min().unwrap_or(0), needs().max().unwrap_or(0));
    format!(
        "each device computes the loss of its own outputs, and none gathers.\n  Without Adam's \
         state, {} on {}, they need the same to {:.2} %.\n",
        size(devices[0].optimizer_state),
        devices[0].device,
        100.0 * (most - least) as f64 / most as f64,
    )
}

fn ranks(devices: &[DeviceReport]) -> String {
    let first = &devices[0];
    let same = devices.iter().all(|device| (device.live, device.peak) == (first.live, first.peak));
    format!(
        "{}.\n  Each has an Adam, with {} of state, and its gradients once more in buckets, {}.\n",
        if same { "all ranks need the same, to the byte" } else { "the ranks differ" },
        size(first.optimizer_state),
        size(first.others()),
    )
}

fn idle(devices: &[DeviceReport]) -> String {
    let share =
        |device: &DeviceReport| format!("{} {:.0} %", device.device, 100.0 * device.idle_share);
    let shares: Vec<_> = devices.iter().map(share).collect();
    format!("  Idle: {} of a step.\n", shares.join(", "))
}

/// What the formula says of the article's numbers.
fn article() -> String {
    const GIGABYTES: usize = 6;
    const DEVICES: usize = 4;
    const BATCH_SIZE: usize = 200;
    const SEQ_LEN: usize = 163;
    let words = formula::vocab_size(GIGABYTES << 30, BATCH_SIZE, SEQ_LEN, DEVICES);
    let hundreds = thousands(words.next_multiple_of(100));
    format!(
        "\nThe article saw {GIGABYTES} GB more on the first of {DEVICES} GPUs, with {BATCH_SIZE} \
         pairs of {SEQ_LEN} tokens, and does not tell\nits vocabulary. By the same formula it had \
         about {hundreds} words.\n"
    )
}
