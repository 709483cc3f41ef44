//! Whether the ring computes what c10d's all-reduce and the parameter server compute.

use super::all_reduce::carry_out;
use super::schedule::{Iteration, Schedule};
use crate::args::{MeetingArgs, count};
use crate::link::Link;
use crate::methods::{Method, Steps, SyncPs};
use crate::several;
use anyhow::{Result, ensure};
use std::ops::Range;
use tch::{Device, Kind, Tensor};
use tch_parallel::Error;
use tch_parallel::distributed::{ProcessGroup, ReduceOp, init_process_group};

/// Compares the ring's sums of random numbers with those of all_reduce and a parameter server.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  launch -n 4 async-update ring check
  launch -n 4 async-update ring check --without 2            a mistake that the check finds
  launch -n 4 async-update ring check --without 2 --rank 3   only rank 3 loses a chunk")]
pub struct Args {
    /// How many numbers each rank has; may be given several times.
    #[arg(long, default_values = ["1", "17", "101770"], value_parser = count)]
    elements: Vec<usize>,
    /// Leaves this iteration out, from 1 to 2(N - 1): a mistake for the check to find.
    #[arg(long, value_name = "ITERATION")]
    without: Option<usize>,
    /// Leaves less out: all do the iteration, but this rank makes no use of the chunk that it receives.
    #[arg(long, requires = "without")]
    rank: Option<usize>,
    #[command(flatten)]
    meeting: MeetingArgs,
}

pub fn run(args: &Args) -> Result<()> {
    let group = init_process_group(args.meeting.process_group())?;
    let link = several(group.clone())?;
    let mistake = Mistake::check(args, group.world_size())?;
    for &elements in &args.elements {
        let said = check(&group, &link, mistake, elements)?;
        if group.rank() == 0 {
            println!("{said}");
        }
    }
    Ok(())
}

/// What the check is to find.
#[derive(Debug, Clone, Copy)]
struct Mistake {
    /// Which iteration is done wrong, from 0.
    iteration: usize,
    /// Who loses the chunk of this iteration; `None`: nobody sends any.
    rank: Option<usize>,
}

impl Mistake {
    /// Refuses iterations and ranks that there are not.
    fn check(args: &Args, ranks: usize) -> Result<Option<Mistake>> {
        let Some(without) = args.without else { return Ok(None) };
        let last = 2 * (ranks - 1);
        ensure!(
            (1..=last).contains(&without),
            "--without is {without}, but must be an iteration of {ranks} ranks, from 1 to {last}"
        );
        if let Some(rank) = args.rank {
            ensure!(
                rank < ranks,
                "--rank is {rank}, but must be one of {ranks} ranks, from 0 to {}",
                ranks - 1
            );
        }
        Ok(Some(Mistake { iteration: without - 1, rank: args.rank }))
    }
}

/// The ring's all-reduce, in place, with the mistake if there is to be one.
fn ring_sum(link: &Link, mistake: Option<Mistake>, tensor: &mut Tensor) -> Result<()> {
    let whole = Schedule::new(link.rank(), link.world_size());
    let Some(Mistake { iteration, rank }) = mistake else {
        return Ok(carry_out(&whole, link, tensor)?);
    };
    carry_out(&part(&whole, 0..iteration), link, tensor)?;
    if let Some(rank) = rank {
        let before = tensor.copy();
        // It takes part as all do, so that nobody waits for a message that does not come.
        carry_out(&part(&whole, iteration..iteration + 1), link, tensor)?;
        if rank == link.rank() {
            tensor.copy_(&before);
        }
    }
    Ok(carry_out(&part(&whole, iteration + 1..usize::MAX), link, tensor)?)
}

/// Some of a schedule's iterations, counted from 0 through both of its halves.
fn part(whole: &Schedule, range: Range<usize>) -> Schedule {
    let pick = |half: &[Iteration], first: usize| {
        let numbered = (first..).zip(half).filter(|(number, _)| range.contains(number));
        numbered.map(|(_, iteration)| *iteration).collect()
    };
    Schedule {
        scatter_reduce: pick(&whole.scatter_reduce, 0),
        all_gather: pick(&whole.all_gather, whole.scatter_reduce.len()),
    }
}

/// Fails unless every rank ends with the same bits, and each sum is that of other ways, up to
/// rounding. A collective.
fn check(
    group: &ProcessGroup,
    link: &Link,
    mistake: Option<Mistake>,
    elements: usize,
) -> Result<String> {
    let ranks = group.world_size();
    tch::manual_seed(group.rank() as i64);
    let own = Tensor::f_randn([elements as i64], (Kind::Float, Device::Cpu))
        .map_err(Error::tensor("making as many random numbers as --elements says"))?;

    let mut ring = own.copy();
    ring_sum(link, mistake, &mut ring)?;
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
