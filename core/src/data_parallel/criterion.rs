//! The loss on every device: PyTorch-Encoding's `DataParallelCriterion`.

use super::backward::{Roots, end_of};
use super::replicas::{SharedParts, SplitInput, SplitOutputs};
use super::scatter::{length, scatter_detached};
use super::trace::Step;
use crate::{Error, Result, Tensors, check};
use c10d_sys::arithmetic::{add_number_, mul_number_};
use c10d_sys::autograd::{self, GraphEnd};
use std::sync::Arc;
use tch::{Kind, Tensor, no_grad};
use tch_parallel_base::tensors::list;

/// A mean over some of a chunk's rows or tokens, and their number.
#[derive(Debug)]
pub struct Mean {
    /// The mean: a scalar with its graph.
    pub value: Tensor,
    /// The number of values in the mean: a scalar of any kind, on the same device. If it is 0, `value` is ignored.
    pub count: Tensor,
}

impl Mean {
    fn check(&self) -> Result<()> {
        for (what, tensor) in [("a mean's value", &self.value), ("a mean's count", &self.count)] {
            let found = format_args!("of shape {:?}", tensor.size());
            let expected = "a single number, as a criterion with a reduction returns";
            check(tensor.numel() == 1, what, found, expected)?;
        }
        Ok(())
    }
}

type Losses<O, T> = Box<dyn Fn(&O, &T) -> Vec<Mean> + Send + Sync>;

/// A criterion that runs on every device, on that device's outputs and targets.
///
/// `O` is what the model returns for a chunk, `T` the type of a chunk's targets.
///
/// ```
/// use tch::{Device, Kind, Tensor, nn::{self, VarStore}};
/// use tch_parallel::Devices;
/// use tch_parallel::data_parallel::{DataParallelCriterion, DataParallelModel};
///
/// let devices: Devices = "2xcpu".parse()?;
/// let vs = VarStore::new(devices.first().into());
/// let build = |p: &nn::Path| nn::linear(p / "fc", 4, 3, Default::default());
/// let model = DataParallelModel::new(build, &vs, &devices)?;
/// let criterion = DataParallelCriterion::new(|output: &Tensor, label: &Tensor| {
///     output.cross_entropy_for_logits(label)
/// });
///
/// let images = Tensor::ones([8, 4], (Kind::Float, Device::Cpu));
/// let labels = Tensor::zeros([8], (Kind::Int64, Device::Cpu));
/// let outputs = model.f_forward_t(&images, true)?;
/// assert_eq!(outputs.parts()[1].size(), [4, 3]); // on cpu:1
/// let loss = criterion.forward(outputs, labels)?;
/// assert_eq!(loss.value().dim(), 0);
/// loss.backward()?;
/// assert_eq!(vs.variables()["fc.weight"].grad().size(), [3, 4]);
/// # Ok::<(), tch_parallel::Error>(())
/// ```
pub struct DataParallelCriterion<O, T> {
    losses: Losses<O, T>,
}

impl<O: Tensors + Send, T: Tensors + Send> DataParallelCriterion<O, T> {
    /// The mean of the devices' losses, as in PyTorch-Encoding: their sum over the number of devices with a chunk.
    ///
    /// If all chunks have the same weight, this is the loss of the whole batch. It is not if chunks have different
    /// sizes, or if each loss is a mean over what a mask leaves; then use [`weighted`](Self::weighted).
    pub fn new(criterion: impl Fn(&O, &T) -> Tensor + Send + Sync + 'static) -> Self {
        // Every device has the same weight.
        let mean = move |output: &O, target: &T| {
            let value = criterion(output, target);
            let count = Tensor::from(1f32).to_device(value.device());
            vec![Mean { value, count }]
        };
        DataParallelCriterion { losses: Box::new(mean) }
    }

    /// The loss of the whole batch, however it is divided: the criterion returns each mean with the number of rows or
    /// tokens in it. If a chunk has several means (two heads, say), each is weighted on its own, then all are summed.
    ///
    /// ```
    /// # use tch::{Device, Kind, Tensor, nn::{self, VarStore}};
    /// # use tch_parallel::data_parallel::{DataParallelCriterion, DataParallelModel, Mean};
    /// # let devices = "2xcpu".parse()?;
    /// # let vs = VarStore::new(Device::Cpu);
    /// # let build = |p: &nn::Path<'_>| nn::linear(p, 4, 3, Default::default());
    /// # let model = DataParallelModel::new(build, &vs, &devices)?;
    /// # let images = Tensor::rand([8, 4], (Kind::Float, Device::Cpu));
    /// // nll_loss leaves out -100: three targets count on the first device, one on the second.
    /// let targets = Tensor::from_slice(&[0i64, 1, 2, -100, 0, -100, -100, -100]);
    /// let criterion = DataParallelCriterion::weighted(|output: &Tensor, target: &Tensor| {
    ///     let value = output.log_softmax(-1, Kind::Float).nll_loss(target);
    ///     vec![Mean { value, count: target.ne(-100).sum(Kind::Int64) }]
    /// });
    ///
    /// # let whole = model.module().forward(&images).log_softmax(-1, Kind::Float).nll_loss(&targets);
    /// let loss = criterion.forward(model.f_forward_t(&images, true)?, targets)?;
    /// assert!(loss.value().allclose(&whole, 1e-5, 0.0, false)); // that of the whole batch
    /// # use tch::nn::Module;
    /// # Ok::<(), tch_parallel::Error>(())
    /// ```
    pub fn weighted(criterion: impl Fn(&O, &T) -> Vec<Mean> + Send + Sync + 'static) -> Self {
        DataParallelCriterion { losses: Box::new(criterion) }
    }

    /// Divides the targets like the inputs, and computes each device's loss on that device.
    ///
    /// # Errors
    /// [`Error::Argument`] if the targets are divided unlike the outputs, [`Error::Replica`] if the criterion panics.
    pub fn forward(&self, outputs: SplitOutputs<O>, targets: T) -> Result<ParallelLoss> {
        let SplitOutputs { parts, inputs, rows, shared } = outputs;
        let pass = shared.begin_pass()?;
        let trace = shared.trace();
        let targets = scatter_detached(&targets, &shared.devices, 0, &trace)?;
        let target_rows: Vec<_> =
            targets.iter().filter_map(|target| length(list(target).first()?, 0)).collect();
        let found = format_args!("divided into {target_rows:?} rows");
        let expected = format_args!("divided into {rows:?} rows, as the inputs were");
        check(target_rows == rows, "targets", found, expected)?;
        let jobs = parts.into_iter().zip(targets).collect();
        let means =
            shared.workers.parallel_apply("criterion", jobs, |device, (output, target)| {
                let means = trace.span(Step::Loss, device, || (self.losses)(&output, &target));
                means.iter().try_for_each(Mean::check).map(|()| means)
            })?;
        let shares = shares(&means)?;
        let value = no_grad(|| sum(&means, &shares, &shared))?;
        drop(pass);
        Ok(ParallelLoss { means, shares, value, inputs, shared })
    }
}

/// A loss in parts, each on the device where it was computed.
#[must_use = "call backward() on it"]
pub struct ParallelLoss {
    means: Vec<Vec<Mean>>,
    /// The weight of each mean of each device in the whole.
    shares: Vec<Vec<f64>>,
    value: Tensor,
    inputs: Vec<SplitInput>,
    shared: Arc<SharedParts>,
}

impl ParallelLoss {
    /// The loss: a scalar on the first device, without a graph.
    pub fn value(&self) -> &Tensor {
        &self.value
    }

    /// Runs every device's backward pass on its thread, then sums the gradients in the original, as with one device.
    ///
    /// # Errors
    /// [`Error::Replica`] if a replica's pass fails, and [`Error::Argument`] for a loss without a graph.
    pub fn backward(self) -> Result<()> {
        let ParallelLoss { means, shares, inputs, shared, .. } = self;
        let ends = means.iter().flatten().map(|mean| end_of(&mean.value, "backward"));
        let ends = ends.collect::<Result<Vec<_>>>()?;
        let expected = "one that depends on a parameter, computed with gradients";
        check(ends.iter().any(Option::is_some), "the loss", "without a graph", expected)?;
        let mut all_ends = ends.iter();
        let mut roots = Vec::new();
        for ((device, means), shares) in shared.devices.iter().zip(&means).zip(&shares) {
            let _on = device.guard()?;
            let mut part = Roots::new();
            for ((Mean { value, .. }, share), end) in means.iter().zip(shares).zip(&mut all_ends) {
                // The mean of nothing is NaN, and its graph must not be used.
                if let Some(end) = end.as_ref().filter(|_| *share != 0.0) {
                    let mut gradient = value.f_zeros_like()?;
                    add_number_(&mut gradient, *share)?;
                    part.push((end, gradient));
                }
            }
            roots.push(part);
        }
        let gradients = shared.backward(roots, &inputs, false)?;
        // The inputs' own graph, which no pass has reached yet.
        let reached = inputs.iter().zip(gradients);
        let reached = reached.filter_map(|(input, gradient)| Some((&input.whole, gradient?)));
        let (wholes, gradients): (Vec<_>, Vec<_>) = reached.unzip();
        let ends = wholes.into_iter().map(GraphEnd::of).collect::<Result<Vec<_>, _>>();
        let ends = ends.map_err(Error::engine("backward"))?;
        autograd::backward(&ends.iter().collect::<Vec<_>>(), gradients, false)
            .map_err(Error::engine("backward"))
    }
}

/// For each mean, its count divided by the sum of that mean's counts over all devices.
fn shares(means: &[Vec<Mean>]) -> Result<Vec<Vec<f64>>> {
    let terms = means.first().map_or(0, Vec::len);
    let found: Vec<_> = means.iter().map(Vec::len).collect();
    let found = format_args!("a function that returned {found:?} means on the devices");
    let expected = "one that returns the same number on every device, at least one";
    check(terms > 0 && means.iter().all(|part| part.len() == terms), "criterion", found, expected)?;
    let count = |mean: &Mean| f64::try_from(mean.count.f_to_kind(Kind::Double)?);
    let counts = |part: &Vec<Mean>| part.iter().map(count).collect::<Result<Vec<_>, _>>();
    let mut shares = means.iter().map(counts).collect::<Result<Vec<_>, _>>()?;
    for term in 0..terms {
        let total: f64 = shares.iter().map(|part| part[term]).sum();
        shares.iter_mut().for_each(|part| part[term] /= total);
    }
    Ok(shares)
}

fn sum(means: &[Vec<Mean>], shares: &[Vec<f64>], shared: &SharedParts) -> Result<Tensor> {
    let first = shared.devices.first();
    let _on = first.guard()?;
    let mut total: Option<Tensor> = None;
    let parts = means.iter().flatten().zip(shares.iter().flatten());
    for (Mean { value, .. }, share) in parts.filter(|(_, share)| **share != 0.0) {
        let mut part = first.copy_of(&value.f_detach_copy()?)?;
        mul_number_(&mut part, *share)?;
        total = Some(match total {
            None => part,
            Some(total) => total.f_add(&part)?,
        });
    }
    // The mean of nothing at all is NaN, as in PyTorch.
    Ok(total.unwrap_or_else(|| Tensor::from(f32::NAN)))
}

debug_parts!(DataParallelCriterion<O, T>, self);

debug_parts!(ParallelLoss, self, value: self.value);
