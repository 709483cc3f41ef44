//! Samplers, loaders and parts of data sets select Python's samples, in Python's order.

use crate::prelude::*;
use std::collections::HashSet;

/// What Rust and Python make of the same descriptions.
fn results(rust: &[Value], theirs: &[Value]) -> Result<[Vec<Value>; 2]> {
    let [rust, theirs] = [rust, theirs].map(|all| Vec::from_iter(all.iter().map(Value::to_string)));
    let found = |program| -> Result<Vec<Value>> {
        printed(program)?.lines().map(|line| Ok(serde_json::from_str(line)?)).collect()
    };
    let rust = found(example("data_order", rust.iter().map(String::as_str))?)?;
    Ok([rust, found(python("data_order", theirs.iter().map(String::as_str))?)?])
}

/// Each of these gives the same in Rust and in Python, and none gives the same as another.
fn expect_parity(descriptions: &[Value]) -> Result<()> {
    let [rust, python] = results(descriptions, descriptions)?;
    ensure!(rust.len() == descriptions.len() && python.len() == descriptions.len(), "lines lack");
    for ((description, rust), python) in descriptions.iter().zip(&rust).zip(&python) {
        ensure!(rust == python, "{description}: {rust} against {python}");
    }
    let different: HashSet<String> = rust.iter().map(Value::to_string).collect();
    ensure!(different.len() == descriptions.len(), "two of {descriptions:?} are the same");
    Ok(())
}

#[test]
fn a_random_sampler_has_pythons_indices() -> Result<()> {
    let random = |arguments| json!({ "RandomSampler": arguments });
    expect_parity(&[
        random(json!({ "len": 100, "seed": 42 })),
        random(json!({ "len": 100, "seed": 43 })),
        random(json!({ "len": 7, "seed": 1, "num_samples": 3 })),
        random(json!({ "len": 7, "seed": 1, "num_samples": 21 })),
        random(json!({ "len": 7, "seed": 1, "num_samples": 25 })),
        random(json!({ "len": 1000, "seed": 5, "replacement": true })),
        random(json!({ "len": 9, "seed": 5, "replacement": true, "num_samples": 7 })),
        random(json!({ "len": 9, "seed": 5, "replacement": true, "num_samples": 64 })),
        random(json!({ "len": 9, "seed": 5, "replacement": true, "num_samples": 99 })),
    ])
}

#[test]
fn a_sampler_of_a_subset_has_pythons_indices() -> Result<()> {
    let subset = |indices: &[usize], seed| json!({ "SubsetRandomSampler": { "indices": indices, "seed": seed } });
    let many: Vec<usize> = (0..300).map(|index| index * 7).collect();
    expect_parity(&[subset(&many, 3), subset(&many, 4), subset(&[9, 2, 2, 5], 0)])
}

fn weighted(weights: &[f64], num_samples: usize, replacement: bool, seed: u64) -> Value {
    json!({ "WeightedRandomSampler": {
        "weights": weights, "num_samples": num_samples, "replacement": replacement, "seed": seed,
    } })
}

#[test]
fn a_weighted_sampler_has_pythons_indices() -> Result<()> {
    let few = [0.1, 0.9, 0.4, 0.7, 3.0, 0.6, 0.0];
    let many: Vec<f64> = (0..1000).map(|index| f64::from(index % 10) * 0.37).collect();
    expect_parity(&[
        weighted(&few, 50, true, 0),
        weighted(&few, 6, false, 0),
        weighted(&few, 1, true, 3),
        weighted(&many, 1000, true, 1),
        weighted(&many, 1000, true, 2),
        weighted(&many, 900, false, 1),
        weighted(&many, 20, false, 1),
    ])
}

#[test]
fn each_rank_takes_pythons_share_of_what_a_sampler_draws() -> Result<()> {
    let weighted = weighted(&[0.3, 0.1, 2.0, 0.5, 0.05, 0.8, 1.1], 20, true, 9);
    let subset = json!({ "SubsetRandomSampler": { "indices": [10, 20, 30, 40, 50], "seed": 9 } });
    let share = |sampler: &Value, rank, num_replicas, drop_last| {
        json!({ "DistributedSamplerWrapper": {
            "sampler": sampler, "rank": rank, "num_replicas": num_replicas, "drop_last": drop_last,
        } })
    };
    let of_three = |rank| share(&weighted, rank, 3, false);
    expect_parity(&[
        of_three(0),
        of_three(1),
        of_three(2),
        share(&weighted, 1, 3, true),
        share(&weighted, 0, 1, false),
        share(&subset, 1, 2, false),
        share(&subset, 1, 2, true),
        // More ranks than samples.
        share(&subset, 6, 7, false),
    ])
}

#[test]
fn a_loader_cuts_pythons_batches() -> Result<()> {
    let random = json!({ "RandomSampler": { "len": 10, "seed": 4 } });
    let batches = |sampler: &Value, batch_size, drop_last| {
        json!({ "BatchSampler": {
            "len": 10, "sampler": sampler, "batch_size": batch_size, "drop_last": drop_last,
        } })
    };
    let growing = |rank, ranks| json!({ "batch_sampler": { "len": 17, "rank": rank, "num_replicas": ranks } });
    let concat = json!({ "ConcatDataset": {
        "cumulative_sizes": [3, 4, 10], "sampler": random, "batch_size": 4,
    } });
    expect_parity(&[
        batches(&random, 3, false),
        batches(&random, 3, true),
        batches(&json!({ "SequentialSampler": { "len": 10 } }), 4, false),
        growing(0, 1),
        growing(0, 2),
        growing(1, 2),
        concat,
    ])
}

#[test]
fn a_random_split_has_pythons_parts() -> Result<()> {
    let split = |len, lengths: Value, seed| json!({ "random_split": { "len": len, "lengths": lengths, "seed": seed } });
    expect_parity(&[
        split(10, json!([3, 7, 0]), 42),
        split(10, json!([3, 5, 2]), 43),
        split(1001, json!([0.7, 0.2, 0.1]), 1),
        split(30, json!([0.3, 0.3, 0.4]), 42),
        split(11, json!([0.5, 0.25, 0.25]), 0),
    ])
}

#[test]
fn without_a_seed_the_global_generator_draws_pythons_indices_epoch_after_epoch() -> Result<()> {
    let seeded = |name: &str, mut arguments: Value| {
        arguments["manual_seed"] = json!(3);
        json!({ name: arguments })
    };
    let weighted = |replacement| json!({ "weights": [0.3, 0.1, 2.0, 0.5], "num_samples": 4, "replacement": replacement });
    let subset = json!({ "SubsetRandomSampler": { "indices": [1, 2, 3, 4, 5] } });
    let share = json!({ "sampler": subset, "rank": 1, "num_replicas": 2 });
    let shuffled = json!({ "RandomSampler": { "len": 10 } });
    let loader = |draws: bool, batch_size, num_workers| json!({ "len": 10, "sampler": shuffled, "batch_size": batch_size, "num_workers": num_workers, "draw_base_seed": draws });
    expect_parity(&[
        seeded("RandomSampler", json!({ "len": 100 })),
        seeded("RandomSampler", json!({ "len": 9, "replacement": true, "num_samples": 70 })),
        seeded("RandomSampler", json!({ "len": 9, "num_samples": 25 })),
        seeded("SubsetRandomSampler", json!({ "indices": [9, 2, 7, 5, 30, 31, 32] })),
        seeded("WeightedRandomSampler", weighted(true)),
        seeded("WeightedRandomSampler", weighted(false)),
        seeded("DistributedSamplerWrapper", share),
        seeded("random_split", json!({ "len": 30, "lengths": [0.3, 0.3, 0.4] })),
        seeded("BatchSampler", loader(true, 3, 0)),
        seeded("BatchSampler", loader(false, 3, 0)),
        seeded("BatchSampler", loader(true, 4, 2)),
    ])
}

#[test]
fn an_iterable_data_set_is_shared_out_over_ranks_and_workers_as_in_python() -> Result<()> {
    let count = |len, rank, ranks, workers, batch_size, drop_last| {
        json!({ "IterableDataset": {
            "len": len, "rank": rank, "num_replicas": ranks, "num_workers": workers,
            "batch_size": batch_size, "drop_last": drop_last,
        } })
    };
    expect_parity(&[
        count(10, 0, 1, 0, 3, false),
        count(10, 0, 1, 0, 3, true),
        count(23, 1, 2, 0, 4, false),
        count(23, 0, 1, 2, 3, false),
        count(50, 1, 2, 2, 4, false),
        count(50, 1, 2, 3, 4, true),
        // One worker has a batch more than the others.
        count(17, 0, 1, 3, 2, false),
    ])
}

/// Python draws its loader's base seed from the global generator, from which dropout draws too.
#[test]
fn a_training_with_dropout_equals_python_with_and_without_the_base_seed() -> Result<()> {
    let training = |draws: bool, resume: usize| json!({ "training": { "seed": 3, "batch_size": 5, "draw_base_seed": draws, "resume": resume } });
    let [rust, python] = results(
        &[training(true, 0), training(true, 2), training(false, 0), training(false, 2)],
        &[training(true, 0), training(false, 0)],
    )?;
    let [drawn, drawn_resumed, not_drawn, not_drawn_resumed] = &rust[..] else {
        bail!("four trainings make four lines, not {rust:?}");
    };
    ensure!(drawn == &python[0], "{drawn} against {}", python[0]);
    ensure!(not_drawn == &python[1], "{not_drawn} against {}", python[1]);
    ensure!(drawn != not_drawn, "the draw changes nothing");
    ensure!(drawn_resumed == drawn, "resumed: {drawn_resumed} against {drawn}");
    ensure!(not_drawn_resumed == not_drawn, "resumed: {not_drawn_resumed} against {not_drawn}");
    ensure!(drawn.as_array().is_some_and(|losses| losses.len() == 15), "15 steps: {drawn}");
    Ok(())
}
