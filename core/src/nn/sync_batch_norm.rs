//! Batch normalisation over the batches of all ranks: `torch.nn.SyncBatchNorm`.

mod cpu;
mod cuda;

use super::{BatchNorm, BatchNormOptions, Inputs};
use crate::distributed::{ProcessGroup, for_the_engine, is_in_step, refuse_in_a_part, sum};
use crate::{Error, Result, check};
use c10d_sys::{autograd::hook_gradients, tensor::grad_enabled};
use std::borrow::Borrow;
use tch::nn::{ModuleT, Path};
use tch::{Device, Kind, Tensor, no_grad};

const INPUT: &str = "the input of SyncBatchNorm";

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

/// `torch.nn.SyncBatchNorm(num_features, process_group=group)`: a [`batch_norm2d`] that in training uses the mean and
/// variance over all ranks' batches. As in PyTorch, it also replaces [`batch_norm1d`] and [`batch_norm3d`]: it accepts
/// `[N, num_features, …]` with two dimensions or more.
///
/// For batches that are too small on one rank to estimate the mean and variance of the data. Variables, names and
/// evaluation are those of [`batch_norm2d`]. On GPUs it runs the kernels of `torch.nn.SyncBatchNorm`, without waiting
/// for the GPU; unlike PyTorch's, it also works on the CPU. A rank with an empty batch takes part as well; all may have
/// one, and the running statistics then move towards 0, as in PyTorch.
///
/// In training, both passes are collectives: all ranks must run the same layers in the same order, and each must call
/// backward. The forward pass gathers the statistics of every rank, 2C + 1 numbers; the backward pass sums the 2C
/// numbers that the gradient of the input needs. The gradients of weight and bias are those of this rank's batch, for
/// [`DistributedDataParallel`](crate::distributed::DistributedDataParallel) to average. With virtual ranks it works in
/// [`backward_shares`](crate::distributed::DistributedDataParallel::backward_shares), on the CPU.
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
    ///   statistics, if this rank has only one. On GPUs the values of all ranks are not counted, as
    ///   in PyTorch, because the host would wait for the GPU: their variance is then NaN. And
    ///   within a [join](fn@crate::distributed::join), unless that has
    ///   `throw_on_early_termination`.
    /// - [`Error::Collective`]: another rank could not be reached.
    pub fn f_forward_t(&self, xs: &Tensor, train: bool) -> Result<Tensor> {
        let size = xs.size();
        let expected = format_args!("[N, {}, …]", self.num_features);
        check(size.get(1) == Some(&self.num_features), INPUT, format_args!("{size:?}"), expected)?;
        let in_step = is_in_step();
        if train && !in_step {
            refuse_in_a_part("SyncBatchNorm")?;
        }
        if !train || self.group.world_size() == 1 && !in_step {
            if train || self.batch_norm.running_stats.is_none() {
                cpu::check_count(cpu::count(xs))?;
            }
            return Ok(self.batch_norm.normalize(xs, train)?);
        }
        self.group.refuse_in_join("SyncBatchNorm")?;
        let forward = no_grad(|| match xs.device() {
            Device::Cuda(_) => cuda::forward(self, xs),
            _ => cpu::forward(self, xs),
        })?;
        self.connect(xs, forward)
    }

    /// Attaches a graph to the output: the backward pass of this layer.
    fn connect(&self, xs: &Tensor, forward: Forward) -> Result<Tensor> {
        let BatchNorm { ws, bs, options, .. } = &self.batch_norm;
        let Forward { normalized, xs: used, statistics } = forward;
        let inputs = [Some(xs), ws.as_ref(), bs.as_ref()];
        let needs_gradient = inputs.map(|input| input.is_some_and(Tensor::requires_grad));
        if !grad_enabled() || needs_gradient == [false; 3] {
            return Ok(normalized);
        }
        // Freed as soon as no further backward pass can follow.
        let mut saved = Some(Saved {
            versions: versions(&used, ws.as_ref()),
            xs: used.detach(),
            ws: ws.as_ref().map(Tensor::detach),
            statistics,
            eps: options.eps,
            needs_gradient,
            group: xs.requires_grad().then(|| self.group.clone()),
        });
        let mut outputs = [normalized];
        let inputs: Vec<_> = inputs.into_iter().flatten().map(Tensor::shallow_clone).collect();
        hook_gradients(&mut outputs, &inputs, move |gradients, keep_graph| {
            let pass = saved.as_ref().ok_or(RUN_TWICE)?;
            let gradients = pass.backward(gradients.into_iter().next().flatten());
            if !keep_graph {
                saved = None;
            }
            gradients.map_err(for_the_engine)
        })
        .map_err(Error::engine("the forward pass of SyncBatchNorm"))?;
        let [output] = outputs;
        Ok(output)
    }
}

impl ModuleT for SyncBatchNorm {
    /// # Panics
    /// If [`f_forward_t`](Self::f_forward_t) returns an error.
    fn forward_t(&self, xs: &Tensor, train: bool) -> Tensor {
        self.f_forward_t(xs, train).unwrap_or_else(|error| panic!("{error}"))
    }
}

/// The kind of the statistics: 16-bit images have 32-bit means.
fn kind(xs: &Tensor) -> Kind {
    if xs.kind() == Kind::Double { Kind::Double } else { Kind::Float }
}

/// The statistics of all ranks' batches, as each kind of device needs them.
enum Statistics {
    Cpu(cpu::Statistics),
    Cuda(cuda::Statistics),
}

fn versions(xs: &Tensor, ws: Option<&Tensor>) -> [i64; 2] {
    [xs.internal_version(), ws.map_or(0, Tensor::internal_version)]
}

struct Forward {
    normalized: Tensor,
    /// The input as it was used: on GPUs, in a memory order that the kernels know.
    xs: Tensor,
    statistics: Statistics,
}

struct Saved {
    /// The input, without its graph.
    xs: Tensor,
    ws: Option<Tensor>,
    /// Their versions, which change when they are written to.
    versions: [i64; 2],
    statistics: Statistics,
    eps: f64,
    /// Whether the input, the weight and the bias need a gradient.
    needs_gradient: [bool; 3],
    /// The group to exchange with; `None` if the input needs no gradient.
    group: Option<ProcessGroup>,
}

impl Saved {
    /// The gradients of the input, the weight and the bias. A collective if the input needs one.
    fn backward(&self, gradient: Option<Tensor>) -> Result<Vec<Option<Tensor>>> {
        let xs = &self.xs;
        let versions = versions(xs, self.ws.as_ref()).into_iter().zip(self.versions);
        for ((now, then), what) in versions.zip([INPUT, "the weight of SyncBatchNorm"]) {
            let found = "changed in place after the forward pass";
            check(now == then, what, found, "unchanged until the backward pass")?;
        }
        if xs.numel() == 0 {
            // No values have no gradients, but the other ranks still need this one.
            if let Some(group) = &self.group {
                let _ = sum(Tensor::f_zeros([2 * xs.size()[1]], (kind(xs), xs.device()))?, group)?;
            }
            return Ok(vec![None, None, None]);
        }
        // An output that is not part of the loss: here too the others need this rank.
        let gradient = gradient.map_or_else(|| xs.f_zeros_like(), Ok)?;
        match &self.statistics {
            Statistics::Cpu(statistics) => statistics.backward(self, &gradient),
            Statistics::Cuda(statistics) => statistics.backward(self, &gradient),
        }
    }

    /// Two numbers per channel, summed over all ranks. A collective, unless the input needs no gradient: then nothing.
    fn sum_over_ranks(&self, a: &Tensor, b: &Tensor) -> Result<Option<Tensor>> {
        let Some(group) = &self.group else { return Ok(None) };
        Ok(Some(sum(Tensor::f_cat(&[a, b], 0)?, group)?))
    }
}
