//! Whether the ring computes what c10d's all-reduce and the parameter server compute.

use crate::{args::MeetingArgs, link::Link, methods::Method, methods::SyncPs, ring::all_reduce};
use anyhow::{Result, ensure};
use report::{positive, say};
use tch::{Device, Kind, Tensor};
use tch_parallel::distributed::{ProcessGroup, ReduceOp, init_process_group};

/// Compare the ring's sums of random numbers with those of all_reduce and of a parameter server.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  launch -n 4 async-update ring check
  launch -n 4 async-update ring check --elements 7   seven numbers on each rank")]
pub struct Args {
    /// Random numbers on each rank; may be given several times.
    #[arg(long, default_values = ["1", "17", "101770"], value_parser = positive())]
    elements: Vec<usize>,
    #[command(flatten)]
    meeting: MeetingArgs,
}

pub fn run(args: &Args) -> Result<()> {
    let group = init_process_group(args.meeting.process_group())?;
    for &elements in &args.elements {
        say(&group, check(&group, elements, all_reduce)?);
    }
    Ok(())
}

/// Fails unless every rank ends with the same bits, and each sum is that of other ways, up to rounding. A collective.
fn check(
    group: &ProcessGroup,
    elements: usize,
    ring_sum: impl Fn(&Link, &mut Tensor) -> tch_parallel::Result<()>,
) -> Result<String> {
    let ranks = group.world_size();
    let link = Link::between_ranks(group.clone())?;
    tch::manual_seed(group.rank() as i64);
    let own = Tensor::f_randn([elements as i64], (Kind::Float, Device::Cpu))?;

    let mut ring = own.copy();
    ring_sum(&link, &mut ring)?;
    let mut all_reduce = own.copy();
    group.all_reduce(&mut all_reduce, ReduceOp::Sum)?;
    // With a learning rate of -N the server adds the sum to what it has, here to zeros.
    let mut server = own.zeros_like();
    SyncPs { link, lr: -(ranks as f64) }.after_batch(&mut server, own.copy())?;

    // Two orders in which to add N numbers differ in each sum by at most N - 1 roundings of half
    // an epsilon each, relative to the sum of what is added without signs (Higham 2002, chapter 4).
    let mut magnitude = own.abs();
    group.all_reduce(&mut magnitude, ReduceOp::Sum)?;
    let rounding = magnitude * (ranks as f64 * f64::from(f32::EPSILON));
    let explained = f64::try_from(rounding.max())?;

    let bits = |tensor: &Tensor| tensor.view_dtype(Kind::Int);
    let of_ranks = group.all_gather(&ring)?;
    let same_bits = of_ranks.iter().all(|result| bits(result) == bits(&of_ranks[0]));
    let mut distances = Vec::new();
    for (name, sum) in [("all_reduce", &all_reduce), ("the parameter server", &server)] {
        let distance = (&ring - sum).abs();
        let too_far = f64::try_from(distance.gt_tensor(&rounding).sum(Kind::Double))?;
        let largest = f64::try_from(distance.max())?;
        ensure!(
            too_far == 0.0,
            "length {elements}: {too_far} of {elements} sums of the ring are not those of {name}; the largest \
             distance is {largest:.1e}, and rounding explains {explained:.1e}{}",
            if same_bits { "" } else { "; nor do all ranks have the same" }
        );
        distances.push(format!("{largest:.1e} from {name}"));
    }
    ensure!(same_bits, "length {elements}: the ring has given the ranks different bits");
    Ok(format!(
        "length {elements} on {ranks} ranks: the same bits on all, at most {}; rounding explains {explained:.1e}",
        distances.join(" and ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ring::{carry_out, schedule};
    use exhibit_kit::multiprocessing::{self, Process};
    use std::{env::current_exe, process::Command};
    use tch_parallel::distributed::{DeviceChoice, Env, ProcessGroupOptions};

    const RANKS: usize = 3;
    const ITERATIONS: usize = 2 * (RANKS - 1);

    /// Runs `rank` in three processes, each of which is this program with this test alone.
    fn on_every_rank(test: &str, rank: impl Fn(&ProcessGroup)) {
        if Env::read().unwrap().is_some() {
            let options = ProcessGroupOptions { device: DeviceChoice::Cpu, ..Default::default() };
            return rank(&init_process_group(options).unwrap());
        }
        let command = || {
            let mut command = Command::new(current_exe().unwrap());
            let module = module_path!().split_once("::").unwrap().1;
            command.args([&format!("{module}::{test}"), "--exact"]);
            command
        };
        let ranks = Process::ranks(test, (0..RANKS).map(|_| command()).collect()).unwrap();
        let mut passed = 0;
        let count = |line: &str| passed += usize::from(line.contains("ok. 1 passed"));
        multiprocessing::run(ranks, 60, count).unwrap();
        assert_eq!(passed, RANKS);
    }

    /// The check fails on every rank. Returns whether any of them says that sums are wrong, and whether
    /// any says that ranks have different bits.
    fn found(
        group: &ProcessGroup,
        ring_sum: impl Fn(&Link, &mut Tensor) -> tch_parallel::Result<()>,
    ) -> (bool, bool) {
        let error = check(group, 7, ring_sum).unwrap_err().to_string();
        let says = |text: &str| {
            let mut found = Tensor::from_slice(&[i64::from(error.contains(text))]);
            group.all_reduce(&mut found, ReduceOp::Sum).unwrap();
            i64::try_from(found).unwrap() > 0
        };
        let wrong = says("sums of the ring are not those of all_reduce");
        (wrong, says("nor do all ranks have the same"))
    }

    // ANCHOR: left_out
    #[test]
    fn a_ring_that_leaves_an_iteration_out_fails_the_comparison() {
        on_every_rank("a_ring_that_leaves_an_iteration_out_fails_the_comparison", |group| {
            for missing in 0..ITERATIONS {
                let (wrong, _) = found(group, |link, tensor| {
                    let mut schedule = schedule(link.group.rank(), link.group.world_size());
                    schedule.remove(missing);
                    carry_out(&schedule, link, tensor)
                });
                assert!(wrong, "iteration {missing}");
            }
        });
    }
    // ANCHOR_END: left_out

    /// One chunk that one rank does not get, whichever of them it is.
    #[test]
    fn a_ring_in_which_a_single_chunk_is_lost_fails_the_comparison() {
        on_every_rank("a_ring_in_which_a_single_chunk_is_lost_fails_the_comparison", |group| {
            for (loser, lost) in (0..RANKS).flat_map(|rank| (0..ITERATIONS).map(move |i| (rank, i)))
            {
                let (wrong, different) = found(group, |link, tensor| {
                    let schedule = schedule(link.group.rank(), link.group.world_size());
                    carry_out(&schedule[..lost], link, tensor)?;
                    let before = tensor.copy();
                    // It takes part as all do, so that nobody waits for a message that does not come.
                    carry_out(&schedule[lost..=lost], link, tensor)?;
                    if link.group.rank() == loser {
                        tensor.copy_(&before);
                    }
                    carry_out(&schedule[lost + 1..], link, tensor)
                });
                assert!(wrong, "rank {loser}, iteration {lost}");
                // In the first half a chunk's sum is wrong for all, in the second for some ranks.
                assert_eq!(different, lost >= RANKS - 1, "rank {loser}, iteration {lost}");
            }
        });
    }
}
