//! A training that is killed and resumed, however often and at whatever step, ends with the same
//! losses and the same weights, to the last bit, as one that was never killed.

use crate::prelude::*;
use rand::Rng;
use std::ops::RangeInclusive;
use tests::imagenet::{CHECKPOINT, job_with_images};
use tests::training::{self, has_taken_steps};

/// After how many steps an attempt is killed.
const STEPS: RangeInclusive<usize> = 2..=7;

/// Two epochs with everything that a checkpoint must hold (momentum, a schedule, steps over two
/// batches) and with images that are augmented differently in each epoch. There is no scaler, which
/// works only in fp16, where convolutions take a hundred times as long on some processors. The
/// library's tests resume one with a network without convolutions, and the trainer's see it saved.
const TRAINING: &str = "--dataset=mnist --batch-size=4 --epochs=2 --lr=0.05 --schedule=cosine \
                        --accumulate=2 --amp=bf16 --save-every=2 --workers=2";

struct Case {
    ranks: usize,
    arch: &'static str,
    /// The batches of an epoch. Two epochs must have more than all the killed attempts together can take.
    steps: usize,
    kills: usize,
}

/// Starts the training, or resumes it if there is a checkpoint. Its metrics go to `name/metrics`.
fn start(job: &Job, case: &Case, name: &str) -> Result<Process> {
    let Case { ranks, arch, steps, .. } = *case;
    // Sharded, since otherwise each rank would have the optimizer's state of all parameters.
    let zero = if ranks > 1 { " --zero" } else { "" };
    let own = format!("--arch {arch} --steps {steps} --metrics {name}/metrics --resume auto{zero}");
    job.start(launch(ranks, &ddp_imagenet(TRAINING.split(' ').chain(own.split(' ')))?)?)
}

/// The bits of every loss of a rank, by epoch and step.
fn losses(directory: &Path, rank: usize) -> Result<BTreeMap<(u64, u64), u32>> {
    let losses = events(directory, rank, "step", |event| {
        let loss = event["loss"].as_f64()? as f32;
        Some(((event["epoch"].as_u64()?, event["step"].as_u64()?), loss.to_bits()))
    })?;
    Ok(losses.into_iter().collect())
}

/// The results of each epoch.
fn epochs(directory: &Path) -> Result<BTreeMap<u64, [f64; 4]>> {
    let epochs = training::epochs(directory, 0)?;
    Ok(epochs.into_iter().map(|results| (results[0] as u64, results)).collect())
}

/// Expects that kills change nothing.
fn expect_no_change(case: &Case) -> Result<()> {
    let Case { ranks, kills, .. } = *case;
    let job = Job::new()?;
    start(&job, case, "peace")?.wait()?.expect_success()?;
    let peace = job.path("peace");
    let weights = job.tensors(CHECKPOINT)?;
    fs::remove_file(job.path(CHECKPOINT))?;

    let mut seen = vec![BTreeMap::new(); ranks];
    let mut epochs_seen = BTreeMap::new();
    for attempt in 0..=kills {
        let name = format!("attempt{attempt}");
        let directory = job.path(&name);
        let mut launcher = start(&job, case, &name)?;
        if attempt == kills {
            launcher.wait()?.expect_success()?;
        } else {
            let steps = rand::rng().random_range(STEPS);
            job.until(&format!("attempt {attempt} has taken {steps} steps"), || {
                ensure!(!launcher.has_ended()?, "it came to its end before it was killed");
                Ok(has_taken_steps(&directory, ranks - 1, steps).then_some(()))
            })?;
            job.kill_all(&mut launcher)?;
        }
        for (rank, seen) in seen.iter_mut().enumerate() {
            let expected = losses(&peace, rank)?;
            for (place, loss) in losses(&directory, rank)? {
                ensure!(
                    expected.get(&place) == Some(&loss),
                    "attempt {attempt}, rank {rank}: another loss at (epoch, step) {place:?}"
                );
                seen.insert(place, loss);
            }
        }
        epochs_seen.extend(epochs(&directory)?);
    }
    for (rank, seen) in seen.iter().enumerate() {
        ensure!(*seen == losses(&peace, rank)?, "steps of rank {rank} were left out");
    }
    assert_eq!(epochs_seen, epochs(&peace)?);
    for (name, tensor) in job.tensors(CHECKPOINT)? {
        ensure!(weights.get(&name) == Some(&tensor), "{name} differs in the end");
    }
    Ok(())
}

cases! {
    fn one_rank_that_is_killed_time_and_again_comes_to_the_same() =
        expect_no_change(&Case { ranks: 1, arch: "pyramidnet8_a6", steps: 30, kills: 4 });
    fn two_ranks_that_are_killed_time_and_again_come_to_the_same() =
        expect_no_change(&Case { ranks: 2, arch: "pyramidnet8_a6", steps: 30, kills: 4 });
    /// With three ranks or more, the sum of gradients depends on their places in the buckets. The
    /// network is large enough for two buckets.
    fn three_ranks_that_are_killed_add_up_as_before() =
        expect_no_change(&Case { ranks: 3, arch: "pyramidnet8_a100", steps: 16, kills: 2 });
}

#[test]
fn the_middle_of_an_epoch_goes_on_with_batches_of_any_size() -> Result<()> {
    let job = job_with_images(4)?;
    let flags = "images --image-size=32 --arch=pyramidnet8_a6 --metrics=metrics --epochs=1 \
                 --save-every=3 --batch-size=2";
    // A training that ends between its last checkpoint and the end of the epoch.
    let image = job.path("images/val/blue/0.jpg");
    let whole = fs::read(&image)?;
    fs::write(&image, "this is no picture")?;
    job.run(ddp_imagenet(flags.split(' '))?)?.expect_code(1)?;
    fs::write(&image, whole)?;
    fs::rename(job.path(CHECKPOINT), job.path("old.safetensors"))?;

    // Two of eight images are left.
    for (batch_size, steps) in [("2", 1), ("1", 2), ("4", 1)] {
        let resume = ["--resume", "old.safetensors", "--batch-size", batch_size];
        job.run(ddp_imagenet(flags.split(' ').chain(resume))?)?.expect_success()?;
        ensure!(losses(job.directory(), 0)?.len() == steps, "batches of {batch_size}");
    }
    Ok(())
}

#[test]
fn hosts_with_different_numbers_of_ranks_take_equally_many_steps() -> Result<()> {
    let job = job_with_images(4)?;
    let flags = "images --image-size=32 --arch=pyramidnet8_a6 --metrics=metrics --epochs=1 --batch-size=4 --timeout=60";
    let program = ddp_imagenet(flags.split(' '))?;
    // Rank 0 has one other rank on its host, rank 1 none.
    let script = r#"LOCAL_WORLD_SIZE=$((2 - RANK)) exec "$@""#;
    expect_all_succeed(start_by_hand(&job, (0..2).map(|_| Ok(in_shell(script, &program))))?)?;
    assert_eq!([0, 1].map(|rank| losses(job.directory(), rank).unwrap().len()), [2, 2]);
    Ok(())
}
