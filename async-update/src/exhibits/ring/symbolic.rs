//! A ring all-reduce of names in place of numbers: which ranks' chunks each sum is made of.

use crate::ring::{Half, Iteration};
use serde::Serialize;

/// What a rank holds of one chunk: the ranks whose chunks have been added up, in this order.
pub type Sum = Vec<usize>;

/// The first two could as well be exchanged; as in the article's figure the receiver's own is written
/// first of two, and last of more.
fn add(own: &[usize], received: &[usize]) -> Sum {
    if received.len() == 1 { [own, received].concat() } else { [received, own].concat() }
}

/// What all ranks hold: `contents[rank][chunk]`.
pub type Contents = Vec<Vec<Sum>>;

/// A rank, and the number of a chunk.
pub type Place = (usize, usize);

/// One iteration of all ranks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Pass {
    /// Whether what is received is added, and so this is an iteration of scatter-reduce.
    pub adds: bool,
    /// Which of the half's iterations it is, from 1.
    pub number: usize,
    pub sent: Vec<Place>,
    pub received: Vec<Place>,
    pub before: Contents,
    pub after: Contents,
}

/// Carries the schedules of all ranks out, as `carry_out` does with tensors.
pub fn run(schedules: &[Vec<Iteration>]) -> Vec<Pass> {
    let ranks = schedules.len();
    // At the beginning every rank holds nothing but its own gradient.
    let mut contents: Contents = (0..ranks).map(|rank| vec![vec![rank]; ranks]).collect();
    let pass = |index: usize| {
        let of_rank = |rank: usize| schedules[rank][index];
        let before = contents.clone();
        for (rank, own) in contents.iter_mut().enumerate() {
            let left = (rank + ranks - 1) % ranks;
            let received = &before[left][of_rank(left).send];
            let chunk = &mut own[of_rank(rank).recv];
            *chunk = match of_rank(rank).half {
                Half::ScatterReduce => add(chunk, received),
                Half::AllGather => received.clone(),
            };
        }
        Pass {
            adds: of_rank(0).half == Half::ScatterReduce,
            number: index % (ranks - 1) + 1,
            sent: (0..ranks).map(|rank| (rank, of_rank(rank).send)).collect(),
            received: (0..ranks).map(|rank| (rank, of_rank(rank).recv)).collect(),
            before,
            after: contents.clone(),
        }
    };
    (0..schedules[0].len()).map(pass).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ring::schedule;

    #[test]
    fn every_rank_ends_with_the_same_sums_of_everybodys_chunks() {
        for ranks in 2..=26 {
            let schedules: Vec<_> = (0..ranks).map(|rank| schedule(rank, ranks)).collect();
            let after = run(&schedules).pop().unwrap().after;
            assert!(after.iter().all(|own| *own == after[0]), "{ranks} ranks");
            for mut sum in after[0].clone() {
                sum.sort_unstable();
                assert!(sum.into_iter().eq(0..ranks), "{ranks} ranks");
            }
        }
    }
}
