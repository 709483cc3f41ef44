//! Batch normalisation over the batches of all ranks: `torch.nn.SyncBatchNorm`.

use super::batch_norm::{BatchNorm, BatchNormOptions, Inputs, RunningStats};
use crate::distributed::{ProcessGroup, ReduceOp};
use crate::{Error, Result};
use c10d_sys::arithmetic::{add_number_, copy, div_number_, mul_number_};
use c10d_sys::autograd::hook_gradients;
use c10d_sys::tensor::{batch_norm_backward_reduce, grad_enabled};
use std::borrow::Borrow;
use tch::nn::{ModuleT, Path};
use tch::{Kind, TchError, Tensor, no_grad};

const INPUT: &str = "the input of SyncBatchNorm";

/// The name of the forward pass in errors.
const FORWARD: &str = "the forward pass of SyncBatchNorm";

const BACKWARD: &str = "the backward pass of SyncBatchNorm";

const RUN_TWICE: &str = "the backward pass of SyncBatchNorm has already been run and freed what \
                         it needs; run all but the last with retain_graph";

/// See [`sync_batch_norm`].
#[derive(Debug)]
pub struct SyncBatchNorm {
    /// The variables, and the layer to use when nothing is exchanged.
    pub batch_norm: BatchNorm,
    num_features: i64,
    group: ProcessGroup,
}

/// `torch.nn.SyncBatchNorm(num_features, process_group=group)`: a [`batch_norm2d`] that in training
/// uses the mean and variance over all ranks' batches. As in PyTorch, it also replaces
/// [`batch_norm1d`] and [`batch_norm3d`]: it accepts `[N, num_features, …]` with two dimensions or
/// more.
///
/// For batches that are too small on one rank to estimate the mean and variance of the data.
/// Variables, names and evaluation are those of [`batch_norm2d`]. Unlike PyTorch's, it also works
/// on a CPU. A rank with an empty batch takes part as well; all may have one, and the running
/// statistics then move towards 0, as in PyTorch.
///
/// In training, both passes are collectives: all ranks must run the same layers in the same order,
/// and each must call backward. The forward pass gathers the statistics of every rank, 2C + 1
/// numbers; the backward pass sums the 2C numbers that the gradient of the input needs. The
/// gradients of weight and bias are those of this rank's batch, for
/// [`DistributedDataParallel`](crate::distributed::DistributedDataParallel) to average.
///
/// ```
/// use tch::{Kind, Tensor, nn::VarStore};
/// use tch_parallel::distributed::ProcessGroup;
/// use tch_parallel::nn::{BatchNormOptions, sync_batch_norm};
///
/// let group = ProcessGroup::from_env()?;
/// let vs = VarStore::new(group.device());
/// let layer = sync_batch_norm(vs.root() / "bn1", 3, &group, BatchNormOptions::default());
/// let images = Tensor::rand([2, 3, 4, 4], (Kind::Float, group.device())); // this rank's batch
/// let normalised = layer.f_forward_t(&images, true)?;
/// // 0 over the batches of all ranks, here of one.
/// assert!(normalised.mean(Kind::Float).double_value(&[]).abs() < 1e-5);
/// # Ok::<(), tch_parallel::Error>(())
/// ```
///
/// [`batch_norm1d`]: super::batch_norm1d
/// [`batch_norm2d`]: super::batch_norm2d
/// [`batch_norm3d`]: super::batch_norm3d
#[doc(alias = "convert_sync_batchnorm")]
pub fn sync_batch_norm<'a>(
    path: impl Borrow<Path<'a>>,
    num_features: i64,
    group: &ProcessGroup,
    options: BatchNormOptions,
) -> SyncBatchNorm {
    let inputs =
        Inputs { layer: "sync_batch_norm", dimensions: 2..=usize::MAX, shape: "[N, C, …]" };
    let batch_norm = BatchNorm::new(path.borrow(), num_features, options, inputs);
    SyncBatchNorm { batch_norm, num_features, group: group.clone() }
}

impl SyncBatchNorm {
    /// [`ModuleT::forward_t`] that returns errors; the name follows tch's fallible functions.
    ///
    /// # Errors
    /// - [`Error::Argument`]: the input is not `[N, num_features, …]`, or all ranks together have
    ///   only one value per channel, which has no variance; in evaluation without running
    ///   statistics, if this rank has only one.
    /// - [`Error::Collective`]: another rank could not be reached.
    pub fn f_forward_t(&self, xs: &Tensor, train: bool) -> Result<Tensor> {
        let size = xs.size();
        if size.get(1) != Some(&self.num_features) {
            let expected = format!("[N, {}, …]", self.num_features);
            return Err(Error::argument(INPUT, format!("{size:?}"), expected));
        }
        if !train || self.group.world_size() == 1 {
            if train || self.batch_norm.running_stats.is_none() {
                check_count(count(xs))?;
            }
            return Ok(self.batch_norm.normalize(xs, train)?);
        }
        let (normalized, statistics) = no_grad(|| {
            let statistics = Statistics::of_all_ranks(xs, &self.group)?;
            if let Some(running_stats) = &self.batch_norm.running_stats {
                self.update(running_stats, &statistics)?;
            }
            Ok::<_, Error>((self.normalize(xs, &statistics)?, statistics))
        })?;
        self.connect(xs, normalized, statistics)
    }

    fn update(&self, running_stats: &RunningStats, statistics: &Statistics) -> Result<()> {
        let momentum = self.batch_norm.options.momentum;
        let times = |tensor: &Tensor, factor| {
            let mut product = copy(tensor)?;
            mul_number_(&mut product, factor)?;
            Ok::<_, TchError>(product)
        };
        let unbiased = times(&statistics.var, statistics.count / (statistics.count - 1.0))?;
        for (running, new) in
            [(&running_stats.mean, &statistics.mean), (&running_stats.var, &unbiased)]
        {
            let mut running = running.shallow_clone();
            // As a tensor of their kind: 16-bit statistics need a factor of 16 bits, and tch panics
            // where an operation with a number fails.
            let rest = Tensor::from(1.0 - momentum).f_to_kind(running.f_kind()?)?;
            let _ = running.f_mul_(&rest.f_to(running.device())?)?;
            let _ = running.f_add_(&times(new, momentum)?)?;
        }
        running_stats.count_batch();
        Ok(())
    }

    fn normalize(&self, xs: &Tensor, statistics: &Statistics) -> Result<Tensor> {
        let BatchNorm { ws, bs, options, .. } = &self.batch_norm;
        Ok(statistics.normalize(xs, ws.as_ref(), bs.as_ref(), options.eps)?)
    }

    /// Attaches a graph to `normalized`: the backward pass of this layer.
    fn connect(&self, xs: &Tensor, normalized: Tensor, statistics: Statistics) -> Result<Tensor> {
        let BatchNorm { ws, bs, options, .. } = &self.batch_norm;
        let inputs: Vec<_> = [Some(xs), ws.as_ref(), bs.as_ref()]
            .into_iter()
            .flatten()
            .map(Tensor::shallow_clone)
            .collect();
        if !grad_enabled() || !inputs.iter().any(Tensor::requires_grad) {
            return Ok(normalized);
        }
        // Freed as soon as no further backward pass can follow.
        let mut saved = Some(Saved {
            version: xs.internal_version(),
            xs: xs.detach(),
            ws: ws.as_ref().map(Tensor::detach),
            statistics,
            eps: options.eps,
            group: xs.requires_grad().then(|| self.group.clone()),
        });
        let mut outputs = [normalized];
        hook_gradients(&mut outputs, &inputs, move |gradients, keep_graph| {
            let pass = saved.as_ref().ok_or(RUN_TWICE)?;
            let gradients = pass.backward(gradients.into_iter().next().flatten());
            if !keep_graph {
                saved = None;
            }
            gradients.map_err(|error| error.to_string())
        })
        .map_err(Error::engine(FORWARD))?;
        let [output] = outputs;
        Ok(output)
    }
}

impl ModuleT for SyncBatchNorm {
    /// # Panics
    /// If [`f_forward_t`](Self::f_forward_t) returns an error.
    fn forward_t(&self, xs: &Tensor, train: bool) -> Tensor {
        match self.f_forward_t(xs, train) {
            Ok(output) => output,
            Err(error) => panic!("{error}"),
        }
    }
}

/// For each channel, over the batches of all ranks.
#[derive(Debug)]
struct Statistics {
    /// `[C]`
    mean: Tensor,
    /// The biased variance, `[C]`.
    var: Tensor,
    /// The number of values per channel.
    count: f64,
}

impl Statistics {
    /// The statistics of this rank's batch, combined with those of the others. A collective.
    ///
    /// The variance is combined from deviations, within the ranks and of their means, not as a
    /// difference of two large numbers, E[x²] − E[x]².
    fn of_all_ranks(xs: &Tensor, group: &ProcessGroup) -> Result<Statistics> {
        let channels = xs.size()[1];
        let kind = kind(xs);
        let own = Self::of_this_rank(xs)?;
        let all = Tensor::f_stack(&group.all_gather(&own)?, 0)?;
        let means = all.f_narrow(1, 0, channels)?;
        let vars = all.f_narrow(1, channels, channels)?;
        let counts = all.f_narrow(1, 2 * channels, 1)?;
        let count = counts.f_sum(Kind::Double)?.f_double_value(&[])?;
        check_count(count)?;
        // Without any values the sums are 0, and so are the mean and the variance.
        let divisor = count.max(1.0);
        let over_ranks = |values: &Tensor| {
            let weighted = values.f_mul(&counts)?;
            let mut mean = weighted.f_sum_dim_intlist([0].as_slice(), false, Kind::Double)?;
            div_number_(&mut mean, divisor)?;
            Ok::<_, TchError>(mean)
        };
        let mean = over_ranks(&means)?;
        let var = over_ranks(&vars.f_add(&means.f_sub(&mean)?.f_square()?)?)?;
        Ok(Statistics { mean: mean.f_to_kind(kind)?, var: var.f_to_kind(kind)?, count })
    }

    /// The mean and variance of every channel, and the number of values per channel: `[2C + 1]`.
    fn of_this_rank(xs: &Tensor) -> std::result::Result<Tensor, TchError> {
        let channels = xs.size()[1];
        let place = (Kind::Double, xs.device());
        let count = count(xs);
        if count == 0.0 {
            return Tensor::f_zeros([2 * channels + 1], place);
        }
        // Like running statistics themselves, the results are more precise than 16-bit images.
        let unused = || Tensor::f_zeros([channels], (kind(xs), xs.device()));
        let (mean, var) = xs.f_batch_norm_update_stats(Some(unused()?), Some(unused()?), 0.0)?;
        let count = Tensor::f_from_slice(&[count])?.f_to(xs.device())?;
        Tensor::f_cat(&[mean.f_to_kind(Kind::Double)?, var.f_to_kind(Kind::Double)?, count], 0)
    }

    /// `(xs - mean) / sqrt(var + eps) * weight + bias`, fused.
    fn normalize(
        &self,
        xs: &Tensor,
        weight: Option<&Tensor>,
        bias: Option<&Tensor>,
        eps: f64,
    ) -> std::result::Result<Tensor, TchError> {
        if xs.numel() == 0 {
            return xs.f_empty_like();
        }
        let of_kind = |tensor: &Tensor| tensor.f_to_kind(self.mean.kind());
        let (normalized, _, _) = xs.f_native_batch_norm(
            weight.map(of_kind).transpose()?.as_ref(),
            bias.map(of_kind).transpose()?.as_ref(),
            Some(&self.mean),
            Some(&self.var),
            // As in evaluation: with the statistics given.
            false,
            0.0,
            eps,
        )?;
        Ok(normalized)
    }
}

/// The number of values per channel.
fn count(xs: &Tensor) -> f64 {
    xs.numel() as f64 / xs.size()[1] as f64
}

fn check_count(count: f64) -> Result<()> {
    if count == 0.0 || count > 1.0 {
        return Ok(());
    }
    let found = format!("{count} values per channel on all ranks together");
    Err(Error::argument(INPUT, found, "more than one, for a variance, or none"))
}

/// The kind of the statistics: 16-bit images have 32-bit means.
fn kind(xs: &Tensor) -> Kind {
    if xs.kind() == Kind::Double { Kind::Double } else { Kind::Float }
}

/// What the backward pass needs from the forward pass.
struct Saved {
    /// The input, without its graph.
    xs: Tensor,
    /// Its version, which changes when the input is written to.
    version: i64,
    ws: Option<Tensor>,
    statistics: Statistics,
    eps: f64,
    /// The group to exchange with; `None` if the input needs no gradient.
    group: Option<ProcessGroup>,
}

impl Saved {
    /// The gradients of the input, the weight and the bias. A collective if the input needs one.
    fn backward(&self, gradient: Option<Tensor>) -> Result<Vec<Option<Tensor>>> {
        if self.xs.internal_version() != self.version {
            let found = "changed in place after the forward pass";
            return Err(Error::argument(INPUT, found, "unchanged until the backward pass"));
        }
        let Saved { xs, statistics, eps, .. } = self;
        if xs.numel() == 0 {
            // No values have no gradients, but the other ranks still need this one.
            if let Some(group) = &self.group {
                group.all_reduce(
                    &mut statistics.mean.f_zeros_like()?.f_repeat([2])?,
                    ReduceOp::Sum,
                )?;
            }
            return Ok(vec![None, None, None]);
        }
        // An output that is not part of the loss: here too the others need this rank.
        let gradient = gradient.map_or_else(|| xs.f_zeros_like(), Ok)?;
        let (sum, sum_normalized) =
            batch_norm_backward_reduce(&gradient, xs, &statistics.mean, &statistics.var, *eps)
                .map_err(Error::engine(BACKWARD))?;
        let of_input = match &self.group {
            Some(group) => {
                let mut sums = Tensor::f_cat(&[&sum, &sum_normalized], 0)?;
                group.all_reduce(&mut sums, ReduceOp::Sum)?;
                div_number_(&mut sums, statistics.count)?;
                let means = sums.f_chunk(2, 0)?;
                Some(self.of_input(&gradient, &means[0], &means[1])?)
            }
            None => None,
        };
        Ok(vec![of_input, Some(sum_normalized), Some(sum)])
    }

    /// Every value of a channel affects its mean and variance, and these affect all outputs.
    ///
    /// With x̂ the normalised input and g the gradient: weight / sqrt(var + eps) times
    /// g − mean(g) − x̂ · mean(g · x̂).
    fn of_input(
        &self,
        gradient: &Tensor,
        mean: &Tensor,
        mean_normalized: &Tensor,
    ) -> Result<Tensor> {
        let mut std = copy(&self.statistics.var)?;
        add_number_(&mut std, self.eps)?;
        let std = std.f_sqrt()?;
        let scale = match &self.ws {
            Some(ws) => ws.f_div(&std)?,
            None => std.f_reciprocal()?,
        };
        let weight = scale.f_mul(mean_normalized)?.f_neg()?;
        let bias = scale.f_mul(mean)?.f_neg()?;
        let moved = self.statistics.normalize(&self.xs, Some(&weight), Some(&bias), self.eps);
        // One number per channel: [C, 1, 1] for images [N, C, H, W].
        let mut of_channels = vec![1; self.xs.dim() - 1];
        of_channels[0] = -1;
        Ok(moved?.f_addcmul_(gradient, &scale.f_view(&of_channels[..])?)?)
    }
}
