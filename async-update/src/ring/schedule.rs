//! Which chunk a rank sends, and which it receives, in each iteration of a ring all-reduce.
//!
//! The exchange of tensors and the figures follow the same schedule, so the figures show what
//! really happens.

use std::ops::Range;

/// One rank's part in one iteration. It sends to its right neighbour, rank + 1, and receives from
/// its left one, both modulo the number of ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Iteration {
    /// The number of the chunk that it sends.
    pub send: usize,
    /// The number of the chunk that it receives.
    pub recv: usize,
}

/// The N − 1 iterations after which rank r holds the whole sum of chunk r + 1. What is received is
/// added to what is there.
pub fn scatter_reduce(rank: usize, ranks: usize) -> impl Iterator<Item = Iteration> {
    iterations(rank, ranks)
}

/// The N − 1 iterations after which every rank holds all sums. What is received replaces what is
/// there.
pub fn all_gather(rank: usize, ranks: usize) -> impl Iterator<Item = Iteration> {
    iterations(rank + 1, ranks)
}

/// In iteration 0 chunk `first` is sent, and in each the one that was received before.
fn iterations(first: usize, ranks: usize) -> impl Iterator<Item = Iteration> {
    (1..ranks).map(move |iteration| Iteration {
        send: (first + ranks + 1 - iteration) % ranks,
        recv: (first + ranks - iteration) % ranks,
    })
}

/// Where chunk number `chunk` lies in so many elements. The first chunks are longer by one where
/// the length is no multiple of the number of chunks; there may be empty ones.
pub fn chunk(length: usize, chunks: usize, chunk: usize) -> Range<usize> {
    let begin = |chunk: usize| chunk * (length / chunks) + chunk.min(length % chunks);
    begin(chunk)..begin(chunk + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_cover_every_length_without_a_gap() {
        for length in 0..40 {
            for chunks in 1..10 {
                let ranges: Vec<_> = (0..chunks).map(|i| chunk(length, chunks, i)).collect();
                let elements: Vec<_> = ranges.iter().cloned().flatten().collect();
                assert_eq!(elements, (0..length).collect::<Vec<_>>());
                let lengths = ranges.iter().map(Range::len);
                assert!(lengths.clone().max().unwrap() - lengths.min().unwrap() <= 1);
            }
        }
    }

    #[test]
    fn a_rank_receives_what_its_left_neighbour_sends() {
        for ranks in 2..9 {
            for schedule in [iterations as fn(usize, usize) -> _, |r, n| iterations(r + 1, n)] {
                for rank in 0..ranks {
                    let left = (rank + ranks - 1) % ranks;
                    let received = schedule(rank, ranks).map(|i: Iteration| i.recv);
                    assert!(received.eq(schedule(left, ranks).map(|i| i.send)));
                }
            }
        }
    }
}
