//! The flags of the comparison.

use crate::{args::text::TextArgs, model::ModelOptions};
use clap::value_parser;
use exhibit_kit::plot::SvgArgs;
use report::parse_size;
use tch_parallel::Devices;

/// Train with each of the six methods, and show where memory and time go.
///
/// Every method runs in a process of its own, ddp, apex and fsdp in one process per device.
#[derive(Debug, clap::Args)]
#[command(
    mut_arg("hidden", |hidden| hidden.default_value("64")),
    mut_arg("layers", |layers| layers.default_value("2")),
    mut_arg("seq_len", |seq_len| seq_len.default_value("64")),
    // With more, the share of one of two devices exceeds 32 MiB. glibc takes such blocks from the
    // system and returns them every time, and the threads of one process have to take turns at it.
    mut_arg("vocab_size", |vocab_size| vocab_size.default_value("8000")),
    after_help = "Examples:
  dp-custom-criterion compare                          six methods on two logical devices
  dp-custom-criterion compare --devices 4xcpu

The article's sizes, on four GPUs and on four parts of a CPU with much memory:
  cargo xtask run dp-custom-criterion -- compare --devices cuda:0,cuda:1,cuda:2,cuda:3 \\
      --hidden 256 --layers 8 --seq-len 163 --batch-size 200 --vocab-size 22000
  dp-custom-criterion compare --devices 4xcpu --hidden 256 --layers 8 \\
      --seq-len 163 --batch-size 200 --vocab-size 22000 --timeout 3600"
)]
pub struct CompareArgs {
    #[command(flatten)]
    pub text: TextArgs,
    #[command(flatten)]
    pub model: ModelOptions,
    /// Devices: 4xcpu for four logical devices, or a list such as cuda:0,cuda:1.
    #[arg(long, default_value = "2xcpu")]
    pub devices: Devices,
    /// Pairs per batch, for all devices together.
    #[arg(short, long, default_value_t = 32)]
    pub batch_size: usize,
    /// Stop each method after N steps. Memory counts from the third on; a step's time is the median.
    #[arg(long, default_value_t = 5, value_parser = value_parser!(u64).range(3..))]
    pub steps: u64,
    #[command(flatten)]
    pub svg: SvgArgs,
    /// Find each method's largest batch that fits into this memory on every device, such as 2GiB.
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub budget: Option<usize>,
    /// Seconds that each run of a method may take.
    #[arg(long, default_value_t = 600, value_parser = value_parser!(u64).range(1..=u32::MAX.into()))]
    pub timeout: u64,
}
