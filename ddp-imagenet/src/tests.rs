//! What only a whole training shows.

use super::*;
use clap::Parser;
use tch_parallel::profiler::count_synchronizations;

/// How often a training and a validation of `steps` batches make the host wait for the device, or would on a GPU.
fn waits(steps: usize, print_freq: usize) -> usize {
    let dir = tempfile::tempdir().unwrap();
    let flags = format!(
        "ddp-imagenet --dataset mnist -a pyramidnet14_a48 -b 2 -j 0 --epochs 1 --steps {steps} \
         --print-freq {print_freq} --checkpoint-dir {}",
        dir.path().display()
    );
    let args = Args::try_parse_from(flags.split_whitespace()).unwrap();
    let (trained, waits) = count_synchronizations(|| train(&args.train)).unwrap();
    trained.unwrap();
    waits
}

#[test]
fn the_host_waits_for_what_it_prints_and_not_for_each_step() {
    let two_prints = waits(4, 4);
    assert_eq!(waits(8, 8), two_prints);
    // After steps 0, 2, 4, 6 and 7, in training and in validation.
    assert_eq!(waits(8, 2), two_prints + 2 * 3);
}
