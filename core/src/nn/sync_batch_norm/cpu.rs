//! SyncBatchNorm on the CPU, for which PyTorch has none.

use super::super::{BatchNorm, RunningStats};
use super::{Forward, INPUT, Saved, SyncBatchNorm, kind};
use crate::distributed::{ProcessGroup, gather};
use crate::{Error, Result, check};
use c10d_sys::arithmetic::{add_number_, copy, div_number_, mul_number_};
use c10d_sys::tensor::batch_norm_backward_reduce;
use tch::{Kind, TchError, Tensor};

/// A collective.
pub(super) fn forward(layer: &SyncBatchNorm, xs: &Tensor) -> Result<Forward> {
    let BatchNorm { ws, bs, options, running_stats, .. } = &layer.batch_norm;
    let statistics = Statistics::of_all_ranks(xs, &layer.group)?;
    if let Some(running_stats) = running_stats {
        update(running_stats, &statistics, options.momentum)?;
    }
    let normalized = statistics.normalize(xs, ws.as_ref(), bs.as_ref(), options.eps)?;
    let statistics = super::Statistics::Cpu(statistics);
    Ok(Forward { normalized, xs: xs.shallow_clone(), statistics })
}

/// Moves the running statistics towards those of the batch.
fn update(running_stats: &RunningStats, statistics: &Statistics, momentum: f64) -> Result<()> {
    let momentum = running_stats.count_batch(momentum);
    let times = |tensor: &Tensor, factor| {
        let mut product = copy(tensor)?;
        mul_number_(&mut product, factor)?;
        Ok::<_, TchError>(product)
    };
    let unbiased = times(&statistics.var, statistics.count / (statistics.count - 1.0))?;
    for (running, new) in [(&running_stats.mean, &statistics.mean), (&running_stats.var, &unbiased)]
    {
        // A graph that has saved them, such as an evaluation's, must not notice the change.
        let mut running = running.f_data()?;
        // As a tensor of their kind: 16-bit statistics need a 16-bit factor, and tch panics if one with a number fails.
        let rest = Tensor::from(1.0 - momentum).f_to_kind(running.f_kind()?)?;
        let _ = running.f_mul_(&rest.f_to(running.device())?)?;
        let _ = running.f_add_(&times(new, momentum)?)?;
    }
    Ok(())
}

/// For each channel, over the batches of all ranks.
pub(super) struct Statistics {
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
    /// The variance combines deviations, within ranks and of their means; E[x²] − E[x]² would subtract large numbers.
    fn of_all_ranks(xs: &Tensor, group: &ProcessGroup) -> Result<Statistics> {
        let channels = xs.size()[1];
        let kind = kind(xs);
        let all = Tensor::f_stack(&gather(&Self::of_this_rank(xs)?, group)?, 0)?;
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

    /// The gradients of the input, the weight and the bias. A collective if the input needs one.
    pub(super) fn backward(&self, saved: &Saved, gradient: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let Saved { xs, eps, .. } = saved;
        let (sum, sum_normalized) =
            batch_norm_backward_reduce(gradient, xs, &self.mean, &self.var, *eps)
                .map_err(Error::engine("the backward pass of SyncBatchNorm"))?;
        let mut of_input = None;
        if let Some(mut sums) = saved.sum_over_ranks(&sum, &sum_normalized)? {
            div_number_(&mut sums, self.count)?;
            of_input = Some(self.of_input(saved, gradient, &sums.f_chunk(2, 0)?)?);
        }
        Ok(vec![of_input, Some(sum_normalized), Some(sum)])
    }

    /// Every value of a channel affects its mean and variance, and these affect all outputs.
    ///
    /// With x̂ the normalised input and g the gradient: weight / sqrt(var + eps) times g − mean(g) − x̂ · mean(g · x̂).
    fn of_input(&self, saved: &Saved, gradient: &Tensor, means: &[Tensor]) -> Result<Tensor> {
        let (mean, mean_normalized) = (&means[0], &means[1]);
        let mut std = copy(&self.var)?;
        add_number_(&mut std, saved.eps)?;
        let std = std.f_sqrt()?;
        let scale = match &saved.ws {
            Some(ws) => ws.f_div(&std)?,
            None => std.f_reciprocal()?,
        };
        let weight = scale.f_mul(mean_normalized)?.f_neg()?;
        let bias = scale.f_mul(mean)?.f_neg()?;
        let moved = self.normalize(&saved.xs, Some(&weight), Some(&bias), saved.eps);
        // One number per channel: [C, 1, 1] for images [N, C, H, W].
        let mut of_channels = vec![1; saved.xs.dim() - 1];
        of_channels[0] = -1;
        Ok(moved?.f_addcmul_(gradient, &scale.f_view(&of_channels[..])?)?)
    }
}

/// The number of values per channel.
pub(super) fn count(xs: &Tensor) -> f64 {
    xs.numel() as f64 / xs.size()[1] as f64
}

pub(super) fn check_count(count: f64) -> Result<()> {
    let found = format_args!("{count} values per channel on all ranks together");
    check(count == 0.0 || count > 1.0, INPUT, found, "more than one, for a variance, or none")
}
