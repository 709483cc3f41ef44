//! `--resume auto`: the same command starts a training and, after a failure, continues it, also with
//! another number of ranks.

use crate::prelude::*;

const CHECKPOINT: &str = "checkpoint.safetensors";

/// The digits to train on, and how many of them a rank has in a step.
const SAMPLES: usize = 8000;
const BATCH: usize = 100;

/// Two epochs with momentum and dropout, both of which the checkpoint must hold.
const TRAINING: &str = "--epochs=2 --batch-size=100 --momentum=0.9 --lr=0.05 --save-every=4 \
                        --checkpoint=checkpoint.safetensors --resume auto";

fn start(job: &Job, ranks: usize) -> Result<Process> {
    job.start(launch(ranks, &ddp_mnist(TRAINING.split(' ').chain(OUTPUTS))?)?)
}

fn run(job: &Job, ranks: usize) -> Result<Ended> {
    start(job, ranks)?.wait()?.expect_success()
}

/// How many trainings are killed until one is in the middle of an epoch.
const ATTEMPTS: usize = 10;

/// A training that is killed in the middle of an epoch, and goes on from there with another number of
/// ranks. Returns the epoch and the step as well.
fn interrupted(before: usize, after: usize) -> Result<(Job, u64, usize)> {
    for _ in 0..ATTEMPTS {
        let job = Job::new()?;
        let mut launcher = start(&job, before)?;
        // On a fast machine, it may have ended before it is killed.
        job.until("there is a checkpoint", || Ok(job.path(CHECKPOINT).exists().then_some(())))?;
        job.kill_all(&mut launcher)?;
        let (epoch, step) = resumed_from(&run(&job, after)?)?;
        if step > 0 {
            return Ok((job, epoch, step));
        }
    }
    bail!("no training of {ATTEMPTS} was killed in the middle of an epoch");
}

/// The epoch and the step from which a run has gone on, by what it has printed.
fn resumed_from(ended: &Ended) -> Result<(u64, usize)> {
    let place = || {
        let line = ended.stdout.lines().find(|line| line.starts_with("resumed from "))?;
        let (_, place) = line.split_once(": epoch ")?;
        let (epoch, step) = place.split_once(", step ")?;
        Some((epoch.parse().ok()?, step.parse().ok()?))
    };
    place().with_context(|| format!("it does not say from where it goes on: {ended}"))
}

#[test]
fn a_training_begins_without_a_checkpoint_and_goes_on_from_one_to_the_same_weights() -> Result<()> {
    let job = Job::new()?;
    let first = run(&job, 2)?;
    let said = "no checkpoint at checkpoint.safetensors yet: a fresh start";
    ensure!(first.stdout.lines().any(|line| line == said), "{first}");
    let weights = |job: &Job| job.tensors("model.safetensors");
    let expected = weights(&job)?;
    let second = run(&job, 2)?;
    ensure!(resumed_from(&second)? == (2, 0), "{second}");
    ensure!(weights(&job)? == expected, "it trained again");
    let (parts, ..) = interrupted(2, 2)?;
    ensure!(weights(&parts)? == expected, "the weights differ");
    Ok(())
}

#[test]
fn another_number_of_ranks_divides_the_rest_of_the_epoch_among_itself() -> Result<()> {
    for (before, after) in [(3, 1), (1, 3)] {
        let (job, epoch, step) = interrupted(before, after)?;
        let rest = SAMPLES.saturating_sub(step * BATCH * before);
        let expected = rest.div_ceil(after).div_ceil(BATCH);
        for rank in 0..after {
            let steps = events(job.directory(), rank, "step", |event| {
                Some((event["epoch"].as_u64()?, event["step"].as_u64()? as usize))
            })?;
            let found = steps.iter().filter(|place| place.0 == epoch).map(|place| place.1);
            let found: Vec<_> = found.collect();
            let expected: Vec<_> = (step..step + expected).collect();
            ensure!(found == expected, "{before} to {after} ranks: {found:?} from step {step} on");
        }
    }
    Ok(())
}
