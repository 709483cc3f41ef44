//! Whether the ring computes what c10d's all-reduce and the parameter server compute.

use super::all_reduce::carry_out;
use super::schedule::Schedule;
use crate::link::Link;
use crate::methods::{Method, Steps, SyncPs};
use crate::several;
use anyhow::{Result, ensure};
use std::num::NonZeroUsize;
use tch::{Device, Kind, Tensor};
use tch_parallel::Error;
use tch_parallel::distributed::{
    DeviceChoice, ProcessGroup, ProcessGroupOptions, ReduceOp, init_process_group,
};

/// Compares the ring's sums of random numbers with those of all_reduce and a parameter server.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  launch -n 4 async-update ring check
  launch -n 4 async-update ring check --without 2   a mistake that the check finds")]
pub struct Args {
    /// How many numbers each rank has; may be given several times.
    #[arg(long, default_values = ["1", "17", "101770"])]
    elements: Vec<NonZeroUsize>,
    /// Leaves this iteration out, from 1 to 2(N - 1): a mistake for the check to find.
    #[arg(long, value_name = "ITERATION")]
    without: Option<usize>,
}

pub fn run(args: &Args) -> Result<()> {
    let options = ProcessGroupOptions { device: DeviceChoice::Cpu, ..Default::default() };
    let group = init_process_group(options)?;
    let link = several(group.clone())?;
    let schedule = schedule(args, group.rank(), group.world_size())?;
    for elements in &args.elements {
        let said = check(&group, &link, &schedule, elements.get())?;
        if group.rank() == 0 {
            println!("{said}");
        }
    }
    Ok(())
}

fn schedule(args: &Args, rank: usize, ranks: usize) -> Result<Schedule> {
    let mut schedule = Schedule::new(rank, ranks);
    if let Some(missing) = args.without {
        let half = ranks - 1;
        ensure!(
            (1..=2 * half).contains(&missing),
            "--without is {missing}, but must be an iteration of {ranks} ranks, from 1 to {}",
            2 * half
        );
        let _ = match missing.checked_sub(half + 1) {
            None => schedule.scatter_reduce.remove(missing - 1),
            Some(number) => schedule.all_gather.remove(number),
        };
    }
    Ok(schedule)
}

/// Fails unless every rank ends with the same bits, and each sum is that of other ways, up to
/// rounding. A collective.
fn check(
    group: &ProcessGroup,
    link: &Link,
    schedule: &Schedule,
    elements: usize,
) -> Result<String> {
    let ranks = group.world_size();
    tch::manual_seed(group.rank() as i64);
    let own = Tensor::randn([elements as i64], (Kind::Float, Device::Cpu));

    let mut ring = own.copy();
    carry_out(schedule, link, &mut ring)?;
    let mut all_reduce = own.copy();
    group.all_reduce(&mut all_reduce, ReduceOp::Sum)?;
    // With a learning rate of -N the server adds the sum to what it has, here to zeros.
    let mut server = own.zeros_like();
    SyncPs { link: Link::new(group.clone()), lr: -(ranks as f64), steps: Steps::new(1) }
        .after_batch(&mut server, own.copy())?;

    // Two orders in which to add N numbers differ in each sum by at most N - 1 roundings of half
    // an epsilon each, relative to the sum of what is added without signs (Higham 2002, chapter 4).
    let mut magnitude = own.abs();
    group.all_reduce(&mut magnitude, ReduceOp::Sum)?;
    let rounding = magnitude * (ranks as f64 * f64::from(f32::EPSILON));

    let bits = |tensor: &Tensor| tensor.view_dtype(Kind::Int);
    let of_ranks = group.all_gather(&ring)?;
    let same_bits = of_ranks.iter().all(|result| bits(result) == bits(&of_ranks[0]));
    let number = |tensor: Tensor| f64::try_from(tensor).map_err(Error::tensor("compare"));
    let mut distances = Vec::new();
    for (name, sum) in [("all_reduce", &all_reduce), ("the parameter server", &server)] {
        let distance = (&ring - sum).abs();
        let too_far = number(distance.gt_tensor(&rounding).sum(Kind::Double))?;
        let largest = number(distance.max())?;
        ensure!(
            too_far == 0.0,
            "length {elements}: {too_far} of {elements} sums of the ring are not those of {name}; the largest \
             distance is {largest:.1e}, and rounding explains {:.1e}{}",
            number(rounding.max())?,
            if same_bits { "" } else { "; nor do all ranks have the same" }
        );
        distances.push(format!("{largest:.1e} from {name}"));
    }
    ensure!(same_bits, "length {elements}: the ring has given the ranks different bits");
    Ok(format!(
        "length {elements} on {ranks} ranks: the same bits on all, at most {}; rounding explains {:.1e}",
        distances.join(" and "),
        number(rounding.max())?
    ))
}
