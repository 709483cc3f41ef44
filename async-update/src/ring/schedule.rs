//! Which chunk a rank sends, and which it receives, in each iteration of a ring all-reduce.
//!
//! The exchange of tensors and the figures follow the same schedule, so the figures show what
//! really happens.

use std::ops::Range;

/// One rank's part in a ring all-reduce.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schedule {
    /// What is received is added to what is there. After these N − 1 iterations rank r holds the
    /// whole sum of chunk r + 1.
    pub scatter_reduce: Vec<Iteration>,
    /// What is received replaces what is there. After these N − 1 iterations every rank holds all
    /// sums.
    pub all_gather: Vec<Iteration>,
}

/// One rank's part in one iteration. It sends to its right neighbour, rank + 1, and receives from
/// its left one, both modulo the number of ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Iteration {
    /// The number of the chunk that it sends.
    pub send: usize,
    /// The number of the chunk that it receives.
    pub recv: usize,
}

// ANCHOR: schedule
impl Schedule {
    pub fn new(rank: usize, ranks: usize) -> Schedule {
        Schedule {
            scatter_reduce: iterations(rank, ranks).collect(),
            all_gather: iterations(rank + 1, ranks).collect(),
        }
    }
}

/// In iteration 0 chunk `first` is sent, and in each the one that was received before.
fn iterations(first: usize, ranks: usize) -> impl Iterator<Item = Iteration> {
    (1..ranks).map(move |iteration| Iteration {
        send: (first + ranks + 1 - iteration) % ranks,
        recv: (first + ranks - iteration) % ranks,
    })
}
// ANCHOR_END: schedule

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
            for rank in 0..ranks {
                let (own, left) =
                    (Schedule::new(rank, ranks), Schedule::new((rank + ranks - 1) % ranks, ranks));
                for (own, left) in
                    [(own.scatter_reduce, left.scatter_reduce), (own.all_gather, left.all_gather)]
                {
                    let received = own.iter().map(|iteration| iteration.recv);
                    assert!(received.eq(left.iter().map(|iteration| iteration.send)));
                }
            }
        }
    }
}
