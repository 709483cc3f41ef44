//! SyncBatchNorm on GPUs: the kernels of `torch.nn.SyncBatchNorm`, in its order.

use super::{super::BatchNorm, Forward, Saved, SyncBatchNorm, kind};
use crate::Result;
use c10d_sys::arithmetic::{add_number_, clamp_min_};
use tch::{Kind, TchError, Tensor};

/// The number of values reported by a rank that has none. PyTorch leaves such ranks out, but then the host must wait for
/// the GPU. This number is negligible beside any real one and, unlike 0, can be a divisor.
const NO_VALUES: f64 = 1e-30;

/// The smallest positive number of 16 bits, for running statistics of that kind.
const SMALLEST_HALF: f64 = 5.960_464_477_539_063e-8;

/// For each channel, over the batches of all ranks.
pub(super) struct Statistics {
    /// `[C]`
    mean: Tensor,
    /// 1 / sqrt(var + eps), `[C]`.
    invstd: Tensor,
    /// The number of values per channel on each rank, as 32-bit integers.
    counts: Tensor,
}

/// A collective. The host waits for nothing, so what would need the number of values on all ranks is not checked.
pub(super) fn forward(layer: &SyncBatchNorm, xs: &Tensor) -> Result<Forward> {
    let BatchNorm { ws, bs, options, running_stats, .. } = &layer.batch_norm;
    let xs = in_memory_order(xs)?;
    let momentum = options.momentum;
    let momentum = running_stats.as_ref().map_or(momentum, |stats| stats.count_batch(momentum));
    let channels = xs.size()[1];
    let own = of_this_rank(&xs, options.eps)?;
    let size = [layer.group.world_size() as i64, own.size()[0]];
    // One row for each rank.
    let mut all = Tensor::f_empty(size, (own.f_kind()?, own.device()))?;
    layer.group.all_gather_into_tensor(&mut all, &own)?;
    let (means, invstds) = (all.f_narrow(1, 0, channels)?, all.f_narrow(1, channels, channels)?);
    let counts = all.f_select(1, 2 * channels)?;
    // Of the kind of `means`, whatever that of the input is, the kernel needs only the kind.
    let (mean, invstd) = means.f_batch_norm_gather_stats_with_counts(
        &means,
        &invstds,
        running_stats.as_ref().map(|stats| &stats.mean),
        running_stats.as_ref().map(|stats| &stats.var),
        momentum,
        options.eps,
        &match running_stats {
            Some(stats) => of_kind(&counts, stats.mean.f_kind()?)?,
            None => counts.shallow_clone(),
        },
    )?;
    let normalized = if xs.numel() == 0 {
        xs.f_empty_like()?
    } else {
        let ws = ws.as_ref().map(Tensor::f_contiguous).transpose()?;
        xs.f_batch_norm_elemt(ws.as_ref(), bs.as_ref(), &mean, &invstd, options.eps)?
    };
    let statistics = Statistics { mean, invstd, counts: counts.f_to_kind(Kind::Int)? };
    Ok(Forward { normalized, xs, statistics: super::Statistics::Cuda(statistics) })
}

/// Each channel's mean, 1 / sqrt(var + eps), and the count per channel: `[2C + 1]`, of the kind of PyTorch's sums.
fn of_this_rank(xs: &Tensor, eps: f64) -> Result<Tensor, TchError> {
    let channels = xs.size()[1];
    // `full` would wait for the GPU, and panic if it fails.
    let full = |size, number| {
        let mut full = Tensor::f_zeros([size], (kind(xs), xs.device()))?;
        add_number_(&mut full, number)?;
        Ok::<_, TchError>(full)
    };
    let (mean, invstd, count) = if xs.numel() == 0 {
        // Those of a variance of 0.
        (full(channels, 0.0)?, full(channels, eps.sqrt().recip())?, NO_VALUES)
    } else {
        let (mean, invstd) = xs.f_batch_norm_stats(eps)?;
        (mean, invstd, xs.numel() as f64 / channels as f64)
    };
    Tensor::f_cat(&[mean, invstd, full(1, count)?], 0)
}

/// The counts in the kind of the running statistics, in which none of them may become 0.
fn of_kind(counts: &Tensor, kind: Kind) -> Result<Tensor, TchError> {
    let mut counts = counts.f_to_kind(kind)?;
    if kind == Kind::Half {
        clamp_min_(&mut counts, SMALLEST_HALF)?;
    }
    Ok(counts)
}

/// Contiguous in one of the orders that the kernels know: channels first or last.
fn in_memory_order(tensor: &Tensor) -> Result<Tensor, TchError> {
    let channels_last = match tensor.dim() {
        4 => tensor.f_permute([0, 2, 3, 1])?.is_contiguous(),
        5 => tensor.f_permute([0, 2, 3, 4, 1])?.is_contiguous(),
        _ => false,
    };
    if channels_last { Ok(tensor.shallow_clone()) } else { tensor.f_contiguous() }
}

impl Statistics {
    /// The gradients of the input, the weight and the bias. A collective if the input needs one.
    pub(super) fn backward(&self, saved: &Saved, gradient: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let Saved { xs, ws, needs_gradient: [of_input, of_weight, of_bias], .. } = saved;
        let Statistics { mean, invstd, counts } = self;
        let gradient = in_memory_order(gradient)?;
        let ws = ws.as_ref();
        let (sum, sum_centered, weight_gradient, bias_gradient) = xs.f_batch_norm_backward_reduce(
            &gradient, mean, invstd, ws, *of_input, *of_weight, *of_bias,
        )?;
        let mut input_gradient = None;
        if let Some(sums) = saved.sum_over_ranks(&sum, &sum_centered)? {
            let sums = sums.f_chunk(2, 0)?;
            let (of_one, of_product) = (&sums[0], &sums[1]);
            let ws = ws.map(|ws| ws.f_to_kind(mean.f_kind()?)).transpose()?;
            let ws = ws.as_ref();
            input_gradient = Some(xs.f_batch_norm_backward_elemt(
                &gradient, mean, invstd, ws, of_one, of_product, counts,
            )?);
        }
        Ok(vec![
            input_gradient,
            of_weight.then_some(weight_gradient),
            of_bias.then_some(bias_gradient),
        ])
    }
}

/// Its kernels run only on GPUs.
#[cfg(test)]
mod tests {
    use super::*;
    use tch::kind::FLOAT_CPU;

    #[test]
    fn a_rank_without_values_reports_statistics_that_have_no_weight() {
        let nothing = Tensor::zeros([0, 3, 4, 4], (Kind::Half, tch::Device::Cpu));
        let own = of_this_rank(&nothing, 0.25).unwrap();
        assert_eq!(own, Tensor::from_slice(&[0f32, 0.0, 0.0, 2.0, 2.0, 2.0, 1e-30]));
        // So that 0 * 1 / count is not NaN in any kind, and the backward pass counts nothing.
        for kind in [Kind::Half, Kind::BFloat16, Kind::Float] {
            assert!(of_kind(&own.narrow(0, 6, 1), kind).unwrap().double_value(&[0]) > 0.0);
        }
        assert_eq!(own.select(0, 6).to_kind(Kind::Int).int64_value(&[]), 0);
    }

    #[test]
    fn images_with_the_channels_last_stay_so_and_others_become_contiguous() {
        let images = Tensor::zeros([2, 3, 5, 4], FLOAT_CPU);
        let channels_last = Tensor::zeros([2, 5, 4, 3], FLOAT_CPU).permute([0, 3, 1, 2]);
        let transposed = Tensor::zeros([2, 3, 4, 5], FLOAT_CPU).transpose(2, 3);
        for (xs, stays) in [(&images, true), (&channels_last, true), (&transposed, false)] {
            let ordered = in_memory_order(xs).unwrap();
            assert_eq!(ordered.data_ptr() == xs.data_ptr(), stays, "{:?}", xs.stride());
            assert!(stays || ordered.is_contiguous());
        }
    }
}
