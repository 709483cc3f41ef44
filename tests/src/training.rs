//! The results of a training, for comparison to the last bit.

use crate::job::{Job, Process, expect_all_succeed};
use crate::programs::{ddp_mnist, launch, start_by_hand};
use crate::{Shared, prelude::*, python, safetensors::Tensors};
use std::ops::Range;

/// The flags that make a training to be compared write its metrics and its weights to the job's directory.
pub const OUTPUTS: [&str; 4] = ["--metrics", "metrics", "--save", "model.safetensors"];

/// Every loss of every rank, the results of each epoch, and the final weights.
#[derive(Debug)]
pub struct Training {
    /// By rank, in the order of the steps, one epoch after the other.
    pub losses: Vec<Vec<f32>>,
    /// By rank, as [`epochs`] returns them.
    epochs: Vec<Vec<[f64; 4]>>,
    pub weights: Tensors,
}

impl Training {
    /// Trains with a command that was given [`OUTPUTS`], and is one rank or starts them all.
    pub fn run(command: Command, world_size: usize) -> Result<Self> {
        Self::of(&Job::done(command)?, world_size)
    }

    /// Trains with ddp-mnist under `launch`. The same training is made only once.
    pub fn launched(ranks: usize, flags: &str) -> Result<Arc<Self>> {
        static TRAININGS: Shared<Training> = Shared::new();
        let program = ddp_mnist(flags.split(' ').chain(OUTPUTS))?;
        TRAININGS.get((ranks, flags), || Self::run(launch(ranks, &program)?, ranks))
    }

    /// The same, and compares its results with those of the same training in Python.
    pub fn launched_as_python(ranks: usize, flags: &str) -> Result<Arc<Self>> {
        let rust = Self::launched(ranks, flags)?;
        let rank = |_| python("ddp_mnist", flags.split(' ').chain(OUTPUTS));
        rust.expect_equal(&Self::by_hand((0..ranks).map(rank))?)?;
        Ok(rust)
    }

    /// Trains with one rank for each program, without a launcher.
    pub fn by_hand(programs: impl IntoIterator<Item = Result<Command>>) -> Result<Self> {
        let job = Job::new()?;
        let ranks = start_by_hand(&job, programs)?;
        let world_size = ranks.len();
        expect_all_succeed(ranks)?;
        Self::of(&job, world_size)
    }

    /// Reads the results of a job that was started with [`OUTPUTS`].
    pub fn of(job: &Job, world_size: usize) -> Result<Self> {
        Self::with_weights(job, world_size, job.tensors("model.safetensors")?)
    }

    /// The same for a program that writes its weights elsewhere.
    pub fn with_weights(job: &Job, world_size: usize, weights: Tensors) -> Result<Self> {
        let directory = job.directory();
        Ok(Self {
            losses: (0..world_size).map(|rank| losses(directory, rank)).collect::<Result<_>>()?,
            epochs: (0..world_size).map(|rank| epochs(directory, rank)).collect::<Result<_>>()?,
            weights,
        })
    }

    /// Fails at the first loss or weight that differs in any bit, and says where. The results of
    /// the epochs may differ by rounding, since both sides add up in their own order.
    pub fn expect_equal(&self, other: &Self) -> Result<()> {
        ensure!(self.losses.len() == other.losses.len(), "the worlds differ in size");
        for (rank, (ours, theirs)) in self.losses.iter().zip(&other.losses).enumerate() {
            let steps = (ours.len(), theirs.len());
            ensure!(steps.0 == steps.1 && steps.0 > 0, "rank {rank} took {steps:?} steps");
            for (step, (a, b)) in ours.iter().zip(theirs).enumerate() {
                let place = format!("rank {rank}, step {step} of {}", ours.len());
                ensure!(a.to_bits() == b.to_bits(), "{place}: the losses are {a} and {b}");
            }
        }
        let (ours, theirs) = (&self.epochs, &other.epochs);
        ensure!(same_but_for_rounding(ours, theirs), "the epochs came to {ours:?} and {theirs:?}");
        let names = |training: &Self| training.weights.keys().cloned().collect::<Vec<_>>();
        ensure!(names(self) == names(other), "{:?} against {:?}", names(self), names(other));
        for (name, tensor) in &self.weights {
            ensure!(tensor == &other.weights[name], "the final weights of {name} differ");
        }
        Ok(())
    }
}

fn same_but_for_rounding(ours: &[Vec<[f64; 4]>], theirs: &[Vec<[f64; 4]>]) -> bool {
    let sizes = |epochs: &[Vec<[f64; 4]>]| epochs.iter().map(Vec::len).collect::<Vec<_>>();
    let pairs = ours.iter().flatten().flatten().zip(theirs.iter().flatten().flatten());
    sizes(ours) == sizes(theirs) && pairs.into_iter().all(|(a, b)| (a - b).abs() < 1e-6)
}

pub fn losses(directory: &Path, rank: usize) -> Result<Vec<f32>> {
    // The shortest decimal of an f32 reads back as the same f32.
    events(directory, rank, "step", |event| Some(event["loss"].as_f64()? as f32))
}

/// The number of each epoch, its training loss, validation loss and accuracy.
pub fn epochs(directory: &Path, rank: usize) -> Result<Vec<[f64; 4]>> {
    events(directory, rank, "epoch", |event| {
        let number = |name: &str| event[name].as_f64();
        Some([number("epoch")?, number("train_loss")?, number("val_loss")?, number("accuracy")?])
    })
}

/// What `read` finds in each of a rank's events of this name.
pub fn events<T>(
    directory: &Path,
    rank: usize,
    name: &str,
    read: impl Fn(&Value) -> Option<T>,
) -> Result<Vec<T>> {
    let path = directory.join(format!("metrics/rank{rank}.jsonl"));
    let mut found = Vec::new();
    let text = fs::read_to_string(&path);
    for line in text.with_context(|| format!("cannot read {}", path.display()))?.lines() {
        let event: Value = serde_json::from_str(line)
            .with_context(|| format!("{}: a line is no JSON: {line}", path.display()))?;
        if event["event"] == name {
            found.push(read(&event).with_context(|| format!("a number is missing in {line}"))?);
        }
    }
    Ok(found)
}

/// Whether a rank has taken at least `steps` steps so far. Its file may not exist yet, and its last
/// line may be incomplete.
pub fn has_taken_steps(directory: &Path, rank: usize, steps: usize) -> bool {
    let path = directory.join(format!("metrics/rank{rank}.jsonl"));
    fs::read_to_string(path).unwrap_or_default().matches(r#""loss""#).count() >= steps
}

pub fn wait_for_steps(job: &Job, ranks: Range<usize>, steps: usize) -> Result<()> {
    job.until(&format!("ranks {ranks:?} have taken {steps} steps"), || {
        Ok(ranks.clone().all(|rank| has_taken_steps(job.directory(), rank, steps)).then_some(()))
    })
}

/// Lets `rank` take a step before the `others` do anything, and leaves it stopped there. Otherwise, on
/// a busy machine, they could be done before it begins.
pub fn stop_after_first_step(
    job: &Job,
    ranks: &[Process],
    rank: usize,
    others: Range<usize>,
) -> Result<()> {
    let others = ranks[others].iter().map(Process::pid);
    let tell_others = |signal| others.clone().try_for_each(|other| kill(other, signal));
    tell_others(Signal::SIGSTOP)?;
    wait_for_steps(job, rank..rank + 1, 1)?;
    kill(ranks[rank].pid(), Signal::SIGSTOP)?;
    Ok(tell_others(Signal::SIGCONT)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{errors::expect_error, safetensors::Tensor};

    fn training(loss: f32, weight: u8) -> Training {
        let tensor = Tensor { dtype: "U8".into(), shape: vec![1], bytes: vec![weight] };
        Training {
            losses: vec![vec![1.0, loss]],
            epochs: vec![vec![[0.0, 1.0, 2.0, 3.0]]],
            weights: BTreeMap::from([("0.weight".into(), tensor)]),
        }
    }

    #[test]
    fn one_bit_is_a_difference_that_is_found_and_located() {
        let ours = training(2.0, 1);
        assert!(ours.expect_equal(&training(2.0, 1)).is_ok());
        expect_error(ours.expect_equal(&training(2.0_f32.next_up(), 1)), "rank 0, step 1 of 2");
        expect_error(ours.expect_equal(&training(2.0, 3)), "0.weight");
    }

    #[test]
    fn what_is_missing_is_a_difference() {
        let ours = training(2.0, 1);
        let spoil: [fn(&mut Training); 4] = [
            |training| training.losses[0].clear(),
            |training| training.losses.clear(),
            |training| training.epochs[0].clear(),
            |training| training.weights.clear(),
        ];
        for spoil in spoil {
            let mut theirs = training(2.0, 1);
            spoil(&mut theirs);
            assert!(ours.expect_equal(&theirs).is_err());
        }
    }
}
