//! The loss on every device: PyTorch-Encoding's `DataParallelCriterion`.

use super::backward::Roots;
use super::model::SplitOutputs;
use super::replicate::{SharedParts, SplitInput};
use super::scatter::scatter_traced;
use super::trace::Step;
use crate::{Error, Result, Tensors};
use std::fmt;
use std::sync::Arc;
use tch::{Kind, Tensor, no_grad};

/// A mean over some of a chunk's rows or tokens, and over how many.
#[derive(Debug)]
pub struct Mean {
    /// The mean: a single number with its graph.
    pub value: Tensor,
    /// Over how many it was taken: a single number, of any kind, on the same device. Where it is 0
    /// the value does not matter.
    pub count: Tensor,
}

type Losses<O, T> = Box<dyn Fn(&O, &T) -> Vec<Mean> + Send + Sync>;

/// A criterion that runs on every device, on that device's outputs and its share of the targets.
///
/// `O` is what the model returns for a chunk, `T` what the targets of a chunk are.
pub struct DataParallelCriterion<O, T> {
    losses: Losses<O, T>,
}

impl<O: Tensors + Send, T: Tensors + Send> DataParallelCriterion<O, T> {
    /// The mean of the devices' losses, as in PyTorch-Encoding: their sum divided by the number of
    /// devices that had something to do.
    ///
    /// It is the loss of the whole batch where all chunks count the same. It is not where chunks
    /// are uneven, or where each is a mean over what a mask has left; see
    /// [`weighted`](Self::weighted).
    pub fn new(criterion: impl Fn(&O, &T) -> Tensor + Send + Sync + 'static) -> Self {
        // Every device counts once.
        let mean = move |output: &O, target: &T| {
            let value = criterion(output, target);
            let count = Tensor::from(1f32).to_device(value.device());
            vec![Mean { value, count }]
        };
        DataParallelCriterion { losses: Box::new(mean) }
    }

    /// The loss of the whole batch, whatever the chunks: the criterion says of each mean over how
    /// many rows or tokens it was taken. Several means of a chunk (two heads of a model, say) are
    /// weighted each by itself, and then summed.
    ///
    /// ```
    /// # use tch::{Kind, Reduction, Tensor};
    /// # use tch_parallel::data_parallel::{DataParallelCriterion, Mean};
    /// let criterion = DataParallelCriterion::weighted(|output: &Tensor, target: &Tensor| {
    ///     let value = output.nll_loss(target);
    ///     vec![Mean { value, count: target.ne(-100).sum(Kind::Int64) }]
    /// });
    /// ```
    pub fn weighted(criterion: impl Fn(&O, &T) -> Vec<Mean> + Send + Sync + 'static) -> Self {
        DataParallelCriterion { losses: Box::new(criterion) }
    }

    /// Divides the targets as the inputs were, and computes each device's loss there.
    ///
    /// # Errors
    /// [`Error::Argument`] for targets that are divided otherwise than the outputs,
    /// [`Error::Replica`] where the criterion panics.
    pub fn forward(&self, outputs: SplitOutputs<O>, targets: T) -> Result<ParallelLoss> {
        let SplitOutputs { parts, inputs, shared } = outputs;
        let trace = shared.trace();
        let targets = scatter_traced(&targets, &shared.devices, 0, &trace)?;
        if targets.len() != parts.len() {
            return Err(Error::Argument {
                what: "targets".into(),
                found: format!("divided among {} devices", targets.len()),
                expected: format!(
                    "divided among {}, as the outputs are: a row of targets for each row of inputs",
                    parts.len()
                ),
            });
        }
        let jobs = parts.into_iter().zip(targets).collect();
        let means =
            shared.workers.parallel_apply("criterion", jobs, |device, (output, target)| {
                let span = trace.begin(Step::Loss, device);
                let means = (self.losses)(&output, &target);
                span.end();
                Ok(means)
            })?;
        let shares = shares(&means)?;
        let value = no_grad(|| sum(&means, &shares, &shared))?;
        Ok(ParallelLoss { means, shares, value, inputs, shared })
    }
}

/// A loss in parts, each on the device where it was computed.
#[must_use = "call backward() on it"]
pub struct ParallelLoss {
    means: Vec<Vec<Mean>>,
    /// How much each mean of each device counts in the whole.
    shares: Vec<Vec<f64>>,
    value: Tensor,
    inputs: Vec<SplitInput>,
    shared: Arc<SharedParts>,
}

impl ParallelLoss {
    /// The loss: a single number on the first device, without a graph.
    pub fn value(&self) -> &Tensor {
        &self.value
    }

    /// Every device's backward pass on its own thread, then the sum of the gradients in the
    /// variables of the original, as if there were one device.
    ///
    /// # Errors
    /// [`Error::Replica`] where a replica's pass fails.
    pub fn backward(self) -> Result<()> {
        let ParallelLoss { means, shares, inputs, shared, .. } = self;
        let mut roots = Vec::new();
        for ((device, means), shares) in shared.devices.iter().zip(means).zip(shares) {
            let _on = device.guard()?;
            let mut part = Roots::default();
            for (Mean { value, .. }, share) in means.into_iter().zip(shares) {
                // A mean over nothing is not a number, and takes its graph with it.
                if share > 0.0 && value.requires_grad() {
                    let gradient = value.f_full_like(share).map_err(Error::tensor("backward"))?;
                    part.outputs.push(value);
                    part.gradients.push(gradient);
                }
            }
            roots.push(part);
        }
        shared.backward(roots, &inputs)
    }
}

/// For each mean its count, divided by the counts of the same mean on all devices.
fn shares(means: &[Vec<Mean>]) -> Result<Vec<Vec<f64>>> {
    let terms = means.first().map_or(0, Vec::len);
    if terms == 0 || means.iter().any(|part| part.len() != terms) {
        let found: Vec<_> = means.iter().map(Vec::len).collect();
        return Err(Error::Argument {
            what: "criterion".into(),
            found: format!("a function that returned {found:?} means, device by device"),
            expected: "one that returns the same number on every device, and at least one".into(),
        });
    }
    let counts = means
        .iter()
        .map(|part| {
            let count = |mean: &Mean| f64::try_from(mean.count.f_to_kind(Kind::Double)?);
            part.iter().map(count).collect::<Result<Vec<_>, _>>()
        })
        .collect::<Result<Vec<_>, _>>()
        .map_err(Error::tensor("criterion"))?;
    let totals: Vec<f64> =
        (0..terms).map(|term| counts.iter().map(|part| part[term]).sum()).collect();
    Ok(counts
        .iter()
        .map(|part| part.iter().zip(&totals).map(|(count, total)| count / total).collect())
        .collect())
}

fn sum(means: &[Vec<Mean>], shares: &[Vec<f64>], shared: &SharedParts) -> Result<Tensor> {
    let first = shared.devices.first();
    let _on = first.guard()?;
    let mut total: Option<Tensor> = None;
    for (Mean { value, .. }, share) in means.iter().flatten().zip(shares.iter().flatten()) {
        if *share == 0.0 {
            continue;
        }
        let part = first.copy_of(&value.f_detach().map_err(Error::tensor("criterion"))?)?;
        let part = part.f_mul_scalar(*share).map_err(Error::tensor("criterion"))?;
        total = Some(match total {
            None => part,
            Some(total) => total.f_add(&part).map_err(Error::tensor("criterion"))?,
        });
    }
    // A mean over nothing at all is not a number, here as in PyTorch.
    Ok(total.unwrap_or_else(|| Tensor::from(f32::NAN)))
}

impl<O, T> fmt::Debug for DataParallelCriterion<O, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DataParallelCriterion").finish_non_exhaustive()
    }
}

impl fmt::Debug for ParallelLoss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ParallelLoss").field("value", &self.value).finish_non_exhaustive()
    }
}
