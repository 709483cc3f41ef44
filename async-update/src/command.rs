//! The command line: the methods, each with its flags, and what explains and compares them.

use crate::methods::{AsyncPsArgs, EasgdArgs, HogwildArgs, LocalSgdArgs, PostLocalArgs, SspArgs};
use crate::{args::TrainArgs, exhibits::Exhibit, exhibits::RingExhibit};
use clap::{Parser, Subcommand};

/// Train with several workers in every way the article names, and measure what each costs.
#[derive(Debug, Parser)]
// Same as in argparse: if a flag is given twice, the last one counts.
#[command(
    version,
    args_override_self = true,
    after_help = "Examples:
  launch -n 4 async-update ring                  four workers, their gradients summed around a ring
  launch -n 5 async-update async-ps              a server and four workers that wait for nobody
  launch -n 5 async-update ssp --straggle 4:40   the last worker takes 40 ms longer for a gradient
  async-update compare                           all methods but diloco, with and without a slow worker
  async-update trace case1                       what the article's GPUs read and write"
)]
pub struct Args {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Average the gradients of all ranks with c10d's all_reduce.
    #[command(after_help = "Examples:
  launch -n 4 async-update sync-allreduce
  launch -n 4 async-update sync-allreduce --lr 0.4                a fourfold batch, a fourfold rate
  launch -n 4 async-update sync-allreduce --step-time 10 --straggle 3:40   all wait for the last")]
    SyncAllreduce(TrainArgs),
    /// Send all gradients to rank 0, which updates the model and sends it back.
    #[command(after_help = "Examples:
  launch -n 4 async-update sync-ps   and how many bytes go through rank 0")]
    SyncPs(TrainArgs),
    /// Average the gradients of all ranks, chunk by chunk, around a ring.
    Ring(RingArgs),
    /// Let every rank take its own steps, and average the parameters every few steps.
    LocalSgd(LocalSgdArgs),
    /// Same as local-sgd, after a synchronous beginning.
    PostLocal(PostLocalArgs),
    /// Same as local-sgd, but make a step of an outer optimizer from the mean (DiLoCo).
    Diloco(crate::methods::diloco::DiLoCoArgs),
    /// Let workers fetch θ from a server and push gradients to it whenever they like (Downpour).
    AsyncPs(AsyncPsArgs),
    /// Same as async-ps, but no worker may lead the slowest by more than a few updates.
    Ssp(SspArgs),
    /// Let workers train their own parameters, tied to a common centre on a server.
    Easgd(EasgdArgs),
    /// Let threads of one process update the same parameters, without a lock.
    Hogwild(HogwildArgs),
    #[command(flatten)]
    Exhibit(Exhibit),
}

/// `ring` trains; with a subcommand it explains.
#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:
  launch -n 4 async-update ring         training
  async-update ring show --n 5          the article's figures, in letters
  launch -n 4 async-update ring check   are the sums those of all_reduce?"
)]
pub struct RingArgs {
    #[command(subcommand)]
    pub exhibit: Option<RingExhibit>,
    #[command(flatten)]
    pub train: TrainArgs,
}
