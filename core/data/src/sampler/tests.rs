use super::*;
use std::{collections::BTreeSet, fmt::Write};

/// Batches that a function makes from the number of samples.
pub(crate) struct Batches<F>(pub(crate) F);

impl<F: Fn(usize) -> Vec<Vec<usize>> + Send + Sync> BatchSampler for Batches<F> {
    fn batches(&self, len: usize, _epoch: u64) -> Result<Vec<Vec<usize>>> {
        Ok((self.0)(len))
    }

    fn num_batches(&self, len: usize) -> usize {
        (self.0)(len).len()
    }
}

fn rank(rank: usize, num_replicas: usize) -> DistributedSampler {
    DistributedSampler::new(Shard::new(rank, num_replicas).unwrap(), 0)
}

// Every expected list below was printed by PyTorch's own DistributedSampler.

#[test]
fn partitions_are_those_of_pytorch() {
    let mut report = String::new();
    for (len, world, seed, epoch, shuffle, drop_last) in [
        (10, 3, 0, 0, false, false),
        (10, 3, 0, 0, false, true),
        (10, 3, 0, 0, true, false),
        (10, 3, 0, 0, true, true),
        (10, 3, 42, 7, true, false),
        (9, 3, 42, 7, true, true),
        (24, 2, 0, 0, false, false),
        (24, 2, 111, 0, true, false),
        (24, 2, 111, 1, true, false),
        (24, 2, 1111, 0, true, false),
        (24, 2, 1111, 1, true, false),
        (24, 5, 0, 0, false, false),
        (24, 5, 0, 0, false, true),
        (2, 5, 0, 0, false, false),
        (3, 7, 0, 0, true, false),
    ] {
        writeln!(report, "\nlen={len} world={world} seed={seed} epoch={epoch} shuffle={shuffle} drop_last={drop_last}").unwrap();
        for number in 0..world {
            let sampler = DistributedSampler { shuffle, seed, drop_last, ..rank(number, world) };
            let indices = sampler.indices(len, epoch).unwrap();
            assert_eq!(indices.len(), sampler.num_samples(len));
            writeln!(report, "rank {number}: {indices:?}").unwrap();
        }
    }
    insta::assert_snapshot!(report);
}

#[test]
fn no_samples_and_with_drop_last_too_few_are_shared_out_as_no_samples() {
    for (len, drop_last) in [(0, false), (2, true)] {
        for r in 0..5 {
            let sampler = DistributedSampler { drop_last, ..rank(r, 5) };
            assert!(sampler.indices(len, 0).unwrap().is_empty());
            assert_eq!(sampler.num_samples(len), 0);
        }
    }
}

#[test]
fn mnist_is_shuffled_as_pytorch_does_it() {
    let first = |r, world, epoch| {
        let sampler = DistributedSampler { seed: 42, ..rank(r, world) };
        sampler.indices(60_000, epoch).unwrap()[..4].to_vec()
    };
    assert_eq!(first(0, 1, 0), [37542, 43087, 2992, 25810]);
    assert_eq!(first(0, 2, 0), [37542, 2992, 39634, 55768]);
    assert_eq!(first(1, 2, 0), [43087, 25810, 6425, 11034]);
    assert_eq!(first(0, 1, 1), [55588, 18576, 8097, 17641]);
    assert_eq!(first(1, 8, 3), [55846, 20647, 23273, 895]);
}

#[test]
fn an_order_without_a_seed_cannot_go_on_from_its_middle() {
    let subset =
        DistributedSamplerWrapper::new(SubsetRandomSampler::new([3, 4], None), Shard::WHOLE);
    let weighted = WeightedRandomSampler::new([1.0, 1.0], 2, None);
    for sampler in [&RandomSampler::new(None) as &dyn Sampler, &subset, &weighted] {
        assert_eq!(sampler.indices_after(2, 0, 0).unwrap().len(), 2);
        let error = sampler.indices_after(2, 0, 1).unwrap_err().to_string();
        assert!(error.starts_with("consumed is 1, but must be 0 for a sampler without"), "{error}");
    }
}

#[test]
fn a_shard_that_does_not_exist_is_refused() {
    let expected = "rank is 4, but must be less than num_replicas, which is 4";
    assert_eq!(Shard::new(4, 4).unwrap_err().to_string(), expected);
    let expected = "num_replicas is 0, but must be the number of ranks, at least 1";
    assert_eq!(Shard::new(0, 0).unwrap_err().to_string(), expected);
}

#[test]
fn what_cannot_be_drawn_is_refused() {
    let none = RandomSampler { num_samples: Some(0), ..RandomSampler::new(0) };
    let expected = "num_samples is 0 of a data set of 5, but must be at least 1, of a data set that is not empty";
    assert_eq!(none.indices(5, 0).unwrap_err().to_string(), expected);
    let of_nothing = RandomSampler { num_samples: Some(3), ..RandomSampler::new(0) };
    assert!(of_nothing.indices(0, 0).is_err());
    assert!(RandomSampler::new(0).indices(0, 0).unwrap().is_empty());

    let weighted = |weights: &[f64], num_samples, replacement| {
        let sampler = WeightedRandomSampler::new(weights, num_samples, 0);
        WeightedRandomSampler { replacement, ..sampler }.indices(weights.len(), 0)
    };
    assert_eq!(weighted(&[0.0, 2.0], 3, true).unwrap(), [1, 1, 1]);
    for (weights, num_samples) in
        [(&[1.0, -1.0][..], 1), (&[f64::NAN], 1), (&[0.0, 0.0], 1), (&[], 1), (&[1.0], 0)]
    {
        let error = weighted(weights, num_samples, true).unwrap_err().to_string();
        assert!(error.starts_with("multinomial failed: "), "{error}");
    }
    assert!(weighted(&[1.0, 1.0], 3, false).is_err());
}

/// What the ranks of one epoch see when their number changes: `parts` holds the ranks, and the batches that each takes.
fn seen_in_parts(options: DistributedSampler, len: usize, parts: &[(usize, usize)]) -> Vec<usize> {
    let batch_size = 4;
    let mut seen = Vec::new();
    for &(ranks, steps) in parts {
        let consumed = seen.len();
        for rank in 0..ranks {
            let sampler = DistributedSampler { shard: Shard::new(rank, ranks).unwrap(), ..options };
            let rest = sampler.indices_after(len, 3, consumed).unwrap();
            seen.extend(rest.into_iter().take(steps.saturating_mul(batch_size)));
        }
    }
    seen
}

const TO_THE_END: usize = usize::MAX;

#[test]
fn an_epoch_whose_ranks_change_in_number_has_every_sample() {
    for (len, shuffle) in [(100, true), (101, true), (1000, false), (53, true)] {
        for parts in [
            [(2, 3), (3, 2), (1, TO_THE_END)],
            [(2, 3), (3, 2), (4, TO_THE_END)],
            [(4, 1), (1, 7), (3, TO_THE_END)],
        ] {
            let options = DistributedSampler { shuffle, ..rank(0, 1) };
            let last_ranks = parts[2].0;
            let seen = seen_in_parts(options, len, &parts);
            assert!(seen.len() < len + last_ranks, "at most the last step is filled up");
            assert_eq!(BTreeSet::from_iter(seen), (0..len).collect::<BTreeSet<_>>());

            let options = DistributedSampler { drop_last: true, ..options };
            let seen = seen_in_parts(options, len, &parts);
            assert!(seen.len() + last_ranks > len, "less than one sample per rank is dropped");
            assert_eq!(BTreeSet::from_iter(&seen).len(), seen.len(), "no sample comes twice");
        }
    }
}

#[test]
fn an_epoch_that_goes_on_with_as_many_ranks_is_the_same_for_each() {
    for drop_last in [false, true] {
        for (len, ranks, batch_size) in [(100, 3, 4), (101, 2, 8), (10, 4, 1)] {
            for number in 0..ranks {
                let sampler = DistributedSampler { drop_last, ..rank(number, ranks) };
                let whole = sampler.indices(len, 5).unwrap();
                for step in 0..=whole.len().div_ceil(batch_size) {
                    let own = (step * batch_size).min(whole.len());
                    let rest = sampler.indices_after(len, 5, own * ranks).unwrap();
                    assert_eq!(rest, whole[own..], "rank {number} of {ranks}, step {step}");
                }
            }
        }
    }
}

#[test]
fn a_wrapped_sampler_and_the_batches_of_one_go_on_with_other_ranks_too() {
    let wrapped = |rank, ranks| {
        DistributedSamplerWrapper::new(RandomSampler::new(1), Shard::new(rank, ranks).unwrap())
    };
    let order = RandomSampler::new(1).indices(10, 0).unwrap();
    assert_eq!(wrapped(0, 3).indices_after(10, 0, 4).unwrap(), [order[4], order[7]]);
    assert_eq!(wrapped(1, 3).indices_after(10, 0, 4).unwrap(), [order[5], order[8]]);

    let numbered = Batches(|len: usize| (0..len).map(|it| vec![it; it]).collect::<Vec<_>>());
    let batches = DistributedSamplerWrapper::new(numbered, Shard::new(1, 2).unwrap());
    assert_eq!(batches.batches_after(5, 0, 3).unwrap(), [vec![4; 4]]);
}
