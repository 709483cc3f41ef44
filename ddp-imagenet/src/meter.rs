//! Accuracy, and the lines in which ImageNet's main.py prints it and other means.

use anyhow::Result;
use report::Meters;
use tch::{Kind, Tensor};
use tch_parallel::distributed::{AverageMeter, DistributedDataParallel};

/// The percentage of a batch whose class is among the `k` likeliest of `output`, for each `k` of
/// `topk`: main.py's function of this name. The percentages stay on the device.
///
/// `output`: `[batch, classes]`; `target`: `[batch]`. With fewer classes than `k`, every guess is right.
pub fn accuracy<const N: usize>(
    output: &Tensor,
    target: &Tensor,
    topk: [i64; N],
) -> Result<[Tensor; N]> {
    let (batch, classes) = output.size2()?;
    let widest = topk.into_iter().max().unwrap_or(0).min(classes);
    let (_, guesses) = output.f_topk(widest, 1, true, true)?;
    let correct = guesses.f_eq_tensor(&target.f_view([-1, 1])?)?;
    let right = |k: i64| correct.narrow(1, 0, k.min(classes)).sum(Kind::Double);
    Ok(topk.map(|k| right(k) * 100.0 / batch as f64))
}

/// The loss and the two percentages of a step's shares.
#[derive(Debug, Default)]
pub struct Numbers {
    shares: Vec<Tensor>,
    /// The images of a share.
    pub samples: i64,
}

impl Numbers {
    pub fn push(&mut self, loss: &Tensor, output: &Tensor, labels: &Tensor) -> Result<()> {
        let [top1, top5] = accuracy(output, labels, [1, 5])?;
        self.shares.push(Tensor::f_stack(&[loss, &top1, &top5], 0)?);
        self.samples = labels.size()[0];
        Ok(())
    }

    /// The means of the shares.
    pub fn mean<M>(&self, model: &DistributedDataParallel<M>) -> Result<[Tensor; 3]> {
        let mean = model.mean_of_shares(&self.shares)?;
        Ok([0, 1, 2].map(|number| mean.get(number)))
    }
}

/// A line of training after a batch of the epoch's, with the loss and the two percentages:
///
/// ```text
/// Epoch: [0][  11/5005]  Time  0.123 ( 0.456)  Data  0.001 ( 0.010)  Loss …  Acc@1 …  Acc@5 …
/// ```
pub fn train_line(epoch: u64, position: (usize, usize), meters: &Meters<3>) -> String {
    let times = [show("Time", &meters.batch_time, 3), show("Data", &meters.data_time, 3)];
    line(&format!("Epoch: [{epoch}]"), position, &times.join("\t"), meters)
}

/// A line of validation, which begins with `Test: ` and has no `Data`.
pub fn test_line(position: (usize, usize), meters: &Meters<3>) -> String {
    line("Test: ", position, &show("Time", &meters.batch_time, 3), meters)
}

fn line(prefix: &str, (batch, batches): (usize, usize), times: &str, meters: &Meters<3>) -> String {
    let [losses, top1, top5] = &meters.numbers;
    let digits = batches.to_string().len();
    let losses = format!("Loss {} ({})", scientific(losses.val()), scientific(losses.avg()));
    let [top1, top5] = [show("Acc@1", top1, 2), show("Acc@5", top5, 2)];
    format!("{prefix}[{batch:digits$}/{batches}]\t{times}\t{losses}\t{top1}\t{top5}")
}

/// The last value and, in parentheses, the mean.
fn show(name: &str, meter: &AverageMeter, digits: usize) -> String {
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
        // With fewer classes than guesses, every guess is right.
        assert_eq!(percentages(&Tensor::from_slice2(&[[0.9, 0.1]]), &[1], [1, 5]), [0.0, 100.0]);
    }

    #[test]
    fn lines_are_those_of_main_py() {
        let mut meters = Meters::default();
        for (seconds, loss, images) in [(0.5, 7.0, 3), (0.25, 6.0, 1)] {
            meters.batch_time.update(seconds, 1);
            meters.data_time.update(seconds / 100.0, 1);
            for (meter, number) in meters.numbers.iter_mut().zip([loss, 25.0, 100.0]) {
                meter.update(number, images);
            }
        }
        let expected = "Epoch: [0][   2/5005]\tTime  0.250 ( 0.375)\tData  0.003 ( 0.004)\t\
         Loss 6.0000e+00 (6.7500e+00)\tAcc@1  25.00 ( 25.00)\tAcc@5 100.00 (100.00)";
        assert_eq!(train_line(0, (2, 5005), &meters), expected);
        let expected = "Test: [ 2/20]\tTime  0.250 ( 0.375)\t\
         Loss 6.0000e+00 (6.7500e+00)\tAcc@1  25.00 ( 25.00)\tAcc@5 100.00 (100.00)";
        assert_eq!(test_line((2, 20), &meters), expected);
    }

    #[test]
    fn exponents_are_written_as_in_python() {
        let written = [0.0, 1.0, 12345.678, 0.00012345, 1e100].map(scientific);
        let python = ["0.0000e+00", "1.0000e+00", "1.2346e+04", "1.2345e-04", "1.0000e+100"];
        assert_eq!(written, python);
    }
}
