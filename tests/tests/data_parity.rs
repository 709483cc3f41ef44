//! Samplers, loaders and parts of data sets select Python's samples, in Python's order.

use crate::prelude::*;
use std::collections::HashSet;
use tests::parity::described;

/// What Rust and Python make of the same descriptions.
fn results(rust: &[Value], theirs: &[Value]) -> Result<[Vec<Value>; 2]> {
    let job = Job::new()?;
    let texts = |all: &[Value]| all.iter().map(Value::to_string).collect::<Vec<_>>();
    let (rust, theirs) = (texts(rust), texts(theirs));
    let rust = job.run(example("data_order", rust.iter().map(String::as_str))?)?;
    let theirs = job.run(python("data_order", theirs.iter().map(String::as_str))?)?;
    Ok([parse(&rust.expect_success()?.stdout)?, parse(&theirs.expect_success()?.stdout)?])
}

fn parse(text: &str) -> Result<Vec<Value>> {
    text.lines().map(|line| Ok(serde_json::from_str(line)?)).collect()
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

fn expect_described(heading: &str) -> Result<()> {
    expect_parity(&described("tests/data/data_order.txt", heading)?)
}

cases! {
    fn a_random_sampler_has_pythons_indices() = expect_described("random sampler");
    /// Of the last sampler, there are more ranks than samples.
    fn each_rank_takes_pythons_share_of_what_a_sampler_draws() = expect_described("ranks' shares");
    fn a_loader_cuts_pythons_batches() = expect_described("batches");
    fn a_random_split_has_pythons_parts() = expect_described("random split");
    fn without_a_seed_the_global_generator_draws_pythons_indices_epoch_after_epoch() =
        expect_described("global generator");
    /// In the last data set, one worker has a batch more than the others.
    fn an_iterable_data_set_is_shared_out_over_ranks_and_workers_as_in_python() =
        expect_described("iterable data set");
}

#[test]
fn a_sampler_of_a_subset_has_pythons_indices() -> Result<()> {
    let subset = |indices: &[usize], seed| json!({ "SubsetRandomSampler": { "indices": indices, "seed": seed } });
    let many: Vec<usize> = (0..300).map(|index| index * 7).collect();
    expect_parity(&[subset(&many, 3), subset(&many, 4), subset(&[9, 2, 2, 5], 0)])
}

#[test]
fn a_weighted_sampler_has_pythons_indices() -> Result<()> {
    let weighted = |weights: &[f64], num_samples: usize, replacement: bool, seed: u64| {
        json!({ "WeightedRandomSampler": {
            "weights": weights, "num_samples": num_samples, "replacement": replacement, "seed": seed,
        } })
    };
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
