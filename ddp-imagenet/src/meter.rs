//! Accuracy, and the lines in which ImageNet's main.py prints it and other means.

use anyhow::Result;
use serde::{Deserialize, Serialize};
use std::time::Instant;
use tch::{Kind, Tensor};
use tch_parallel::distributed::AverageMeter;

/// The percentage of a batch whose class is among the `k` likeliest of `output`, for each `k` of
/// `topk`: main.py's function of this name. The percentages stay on the device.
///
/// `output`: `[batch, classes]`; `target`: `[batch]`. With fewer classes than `k`, every guess is
/// right.
pub fn accuracy<const N: usize>(
    output: &Tensor,
    target: &Tensor,
    topk: [i64; N],
) -> Result<[Tensor; N]> {
    let (batch, classes) = output.size2()?;
    let widest = topk.into_iter().max().unwrap_or(0).min(classes);
    let (_, guesses) = output.f_topk(widest, 1, true, true)?;
    let correct = guesses.f_eq_tensor(&target.f_view([-1, 1])?)?;
    Ok(topk.map(|k| {
        let right = correct.narrow(1, 0, k.min(classes)).sum(Kind::Double);
        right * 100.0 / batch as f64
    }))
}

/// What is measured in an epoch of training, or in a validation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Meters {
    /// Seconds of a step, the wait for its batch included. The last value is the mean since the
    /// [`Clock`] was last read.
    pub batch_time: AverageMeter,
    /// Seconds for which a step waited for its batch, likewise.
    pub data_time: AverageMeter,
    pub losses: AverageMeter,
    /// Percentage of images whose class is the first guess.
    pub top1: AverageMeter,
    /// Percentage of images whose class is among the first five guesses.
    pub top5: AverageMeter,
}

impl Meters {
    /// Adds a batch of `images`: its mean loss, and the percentages of correct guesses.
    pub fn add(&mut self, loss: f64, [top1, top5]: [f64; 2], images: i64) {
        let images = images as usize;
        self.losses.update(loss, images);
        self.top1.update(top1, images);
        self.top5.update(top5, images);
    }

    /// A line of training after `batch` of the epoch's `batches`:
    ///
    /// ```text
    /// Epoch: [0][  11/5005]  Time  0.123 ( 0.456)  Data  0.001 ( 0.010)  Loss …  Acc@1 …  Acc@5 …
    /// ```
    pub fn train_line(&self, epoch: u64, batch: usize, batches: usize) -> String {
        let times = [show("Time", self.batch_time, 3), show("Data", self.data_time, 3)].join("\t");
        self.line(&format!("Epoch: [{epoch}]"), batch, batches, &times)
    }

    /// A line of validation, which begins with `Test: ` and has no `Data`.
    pub fn test_line(&self, batch: usize, batches: usize) -> String {
        self.line("Test: ", batch, batches, &show("Time", self.batch_time, 3))
    }

    fn line(&self, prefix: &str, batch: usize, batches: usize, times: &str) -> String {
        let digits = batches.to_string().len();
        let losses =
            format!("Loss {} ({})", scientific(self.losses.val()), scientific(self.losses.avg()));
        let [top1, top5] = [show("Acc@1", self.top1, 2), show("Acc@5", self.top5, 2)];
        format!("{prefix}[{batch:digits$}/{batches}]\t{times}\t{losses}\t{top1}\t{top5}")
    }
}

/// The clock behind `Time` and `Data`.
///
/// main.py reads it after every step. On a GPU the host is ahead of the device there, and only a step
/// that waits for what is printed takes its time, and that of all before it. So the time from one
/// such step to the next is divided by the number of steps, as in Apex's main_amp.py.
#[derive(Debug)]
pub struct Clock {
    since: Instant,
    steps: usize,
    data_seconds: f64,
}

impl Clock {
    pub fn start() -> Self {
        Self { since: Instant::now(), steps: 0, data_seconds: 0.0 }
    }

    /// Counts a step, and the seconds for which it waited for its batch.
    pub fn step(&mut self, data_seconds: f64) {
        self.steps += 1;
        self.data_seconds += data_seconds;
    }

    /// Adds the steps since it was last read, at least one and all of which have ended, and starts
    /// again.
    pub fn read(&mut self, meters: &mut Meters) {
        let Self { since, steps, data_seconds } = std::mem::replace(self, Self::start());
        meters.batch_time.update(since.elapsed().as_secs_f64() / steps as f64, steps);
        meters.data_time.update(data_seconds / steps as f64, steps);
    }
}

/// The last value and, in parentheses, the mean.
fn show(name: &str, meter: AverageMeter, digits: usize) -> String {
    format!("{name} {:6.digits$} ({:6.digits$})", meter.val(), meter.avg())
}

/// Python's `.4e`: Rust writes the exponent without a sign and a leading zero.
fn scientific(value: f64) -> String {
    let text = format!("{value:.4e}");
    match text.split_once('e').map(|(mantissa, exponent)| (mantissa, exponent.parse::<i32>())) {
        Some((mantissa, Ok(exponent))) => format!("{mantissa}e{exponent:+03}"),
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn percentages<const N: usize>(output: &Tensor, target: &[i64], topk: [i64; N]) -> [f64; N] {
        let percentages = accuracy(output, &Tensor::from_slice(target), topk).unwrap();
        percentages.map(|percentage| f64::try_from(percentage).unwrap())
    }

    #[test]
    fn a_class_counts_where_it_is_among_the_likeliest() {
        let output = Tensor::from_slice2(&[
            [0.1, 0.2, 0.4, 0.3], // 2, 3, 1, 0
            [0.4, 0.3, 0.2, 0.1], // 0, 1, 2, 3
        ]);
        assert_eq!(percentages(&output, &[3, 0], [1, 2]), [50.0, 100.0]);
        assert_eq!(percentages(&output, &[0, 3], [1, 3]), [0.0, 0.0]);
    }

    #[test]
    fn with_fewer_classes_than_guesses_all_are_right() {
        let output = Tensor::from_slice2(&[[0.9, 0.1]]);
        assert_eq!(percentages(&output, &[1], [1, 5]), [0.0, 100.0]);
    }

    #[test]
    fn lines_are_those_of_main_py() {
        let mut meters = Meters::default();
        for (seconds, loss, images) in [(0.5, 7.0, 3), (0.25, 6.0, 1)] {
            meters.batch_time.update(seconds, 1);
            meters.data_time.update(seconds / 100.0, 1);
            meters.add(loss, [25.0, 100.0], images);
        }
        assert_eq!(
            meters.train_line(0, 2, 5005),
            "Epoch: [0][   2/5005]\tTime  0.250 ( 0.375)\tData  0.003 ( 0.004)\t\
             Loss 6.0000e+00 (6.7500e+00)\tAcc@1  25.00 ( 25.00)\tAcc@5 100.00 (100.00)"
        );
        assert_eq!(
            meters.test_line(2, 20),
            "Test: [ 2/20]\tTime  0.250 ( 0.375)\t\
             Loss 6.0000e+00 (6.7500e+00)\tAcc@1  25.00 ( 25.00)\tAcc@5 100.00 (100.00)"
        );
    }

    #[test]
    fn the_time_from_line_to_line_is_divided_by_its_steps() {
        let mut meters = Meters::default();
        let mut clock = Clock::start();
        clock.since -= Duration::from_secs(400);
        (0..4).for_each(|step| clock.step(f64::from(step)));
        clock.read(&mut meters);
        assert!((100.0..110.0).contains(&meters.batch_time.val()), "{meters:?}");
        assert_eq!(meters.data_time.val(), 1.5);
        // From then on the clock counts anew, and each step weighs the same in the mean.
        clock.step(6.5);
        clock.read(&mut meters);
        assert!(meters.batch_time.val() < 40.0, "{meters:?}");
        assert!((80.0..100.0).contains(&meters.batch_time.avg()), "{meters:?}");
        assert_eq!(meters.data_time.avg(), 2.5);
    }

    #[test]
    fn exponents_are_written_as_in_python() {
        let written = [0.0, 1.0, 12345.678, 0.00012345, 1e100].map(scientific);
        let python = ["0.0000e+00", "1.0000e+00", "1.2346e+04", "1.2345e-04", "1.0000e+100"];
        assert_eq!(written, python);
    }
}
