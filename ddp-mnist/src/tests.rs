//! What only a whole training shows.

use super::*;
use clap::Parser;
use tch_parallel::profiler::count_synchronizations;

/// How often the training makes the host wait for the device, or would on a GPU.
fn waits(flags: &str) -> usize {
    let flags = ["ddp-mnist", "--no-save"].into_iter().chain(flags.split_whitespace());
    let args = Args::try_parse_from(flags).unwrap();
    let (trained, waits) = count_synchronizations(|| train(&args)).unwrap();
    trained.unwrap();
    waits
}

#[test]
fn the_host_waits_for_the_losses_of_an_epoch_and_not_for_those_of_a_step() {
    let one_epoch = waits("--epochs 1 --batch-size 2000");
    assert_eq!(waits("--epochs 1 --batch-size 500"), one_epoch);
    assert!(waits("--epochs 2 --batch-size 2000") > one_epoch);
}
