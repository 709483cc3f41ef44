//! Channels of mean 0 and variance 1: `torch.nn.BatchNorm1d`, `BatchNorm2d` and `BatchNorm3d`.

use super::update_bn::weight;
use std::{borrow::Borrow, ops::RangeInclusive};
use tch::{Kind, TchError, Tensor, nn::Init, nn::ModuleT, nn::Path};
use tch_parallel_base::options;

options! {
    /// PyTorch's keyword arguments of `nn.BatchNorm1d`, 2d and 3d, with its defaults.
    #[derive(Debug, Clone, Copy, PartialEq)]
    pub struct BatchNormOptions {
        /// Added to the variance, so that a constant channel causes no division by zero.
        pub eps: f64 = 1e-5,
        /// The weight of each new batch in the running statistics.
        pub momentum: f64 = 0.1,
        /// Whether each channel is then scaled and shifted by a trainable weight and bias.
        pub affine: bool = true,
        /// Whether to keep running statistics. Without them, evaluation uses its own batch's statistics.
        pub track_running_stats: bool = true,
    }
}

/// See [`batch_norm1d`], [`batch_norm2d`] and [`batch_norm3d`].
#[derive(Debug)]
pub struct BatchNorm {
    /// The scale of each channel, `[num_features]`.
    pub ws: Option<Tensor>,
    /// What is added to each channel, `[num_features]`.
    pub bs: Option<Tensor>,
    /// What evaluation uses instead of the batch's mean and variance.
    pub running_stats: Option<RunningStats>,
    /// The options that it was made with.
    pub options: BatchNormOptions,
    inputs: Inputs,
}

/// The accepted inputs: an image without a batch dimension would be normalised along the wrong one.
#[derive(Debug)]
pub struct Inputs {
    /// The layer's name in errors.
    pub layer: &'static str,
    /// The number of dimensions of an input.
    pub dimensions: RangeInclusive<usize>,
    /// The shape of an input, for errors.
    pub shape: &'static str,
}

/// Moving averages over the batches so far, in which the last ones weigh most.
#[derive(Debug)]
pub struct RunningStats {
    /// `[num_features]`
    pub mean: Tensor,
    /// Of unbiased variances, `[num_features]`.
    pub var: Tensor,
    /// The number of batches in them: an int64 on the model's device.
    pub num_batches_tracked: Tensor,
}

/// `torch.nn.BatchNorm1d(num_features)`: [`batch_norm2d`] for `[N, num_features]` or `[N, num_features, L]`.
///
/// ```
/// use tch::{Device, Kind, Tensor, nn::{ModuleT, VarStore}};
/// use tch_parallel::nn::{BatchNormOptions, batch_norm1d};
///
/// let vs = VarStore::new(Device::Cpu);
/// let layer = batch_norm1d(vs.root() / "norm", 3, BatchNormOptions::default());
/// let rows = Tensor::rand([8, 3], (Kind::Float, Device::Cpu)) + 5.0;
/// let means = layer.forward_t(&rows, true).mean_dim(0, false, Kind::Float);
/// assert!(means.abs().max().double_value(&[]) < 1e-5);
/// ```
pub fn batch_norm1d<'a>(
    path: impl Borrow<Path<'a>>,
    num_features: i64,
    options: BatchNormOptions,
) -> BatchNorm {
    let inputs = Inputs { layer: "batch_norm1d", dimensions: 2..=3, shape: "[N, C] or [N, C, L]" };
    BatchNorm::new(path.borrow(), num_features, options, inputs)
}

/// `torch.nn.BatchNorm2d(num_features)`: normalises each channel of images `[N, num_features, H,
/// W]` to mean 0 and variance 1 over the batch, then scales and shifts it.
///
/// Weights start at 1, as in PyTorch; tch's own layer draws them at random. Buffers have PyTorch's
/// names, including `num_batches_tracked`. Ioffe and Szegedy, "Batch Normalization" (2015).
///
/// ```
/// use tch::{Device, Kind, Tensor, nn::{ModuleT, VarStore}};
/// use tch_parallel::nn::{BatchNormOptions, batch_norm2d};
///
/// let vs = VarStore::new(Device::Cpu);
/// let layer = batch_norm2d(vs.root() / "bn1", 3, BatchNormOptions::default());
/// let images = Tensor::rand([8, 3, 4, 4], (Kind::Float, Device::Cpu)) + 5.0;
/// let normalised = layer.forward_t(&images, true);
/// assert!(normalised.mean(Kind::Float).double_value(&[]).abs() < 1e-5);
/// assert_eq!(vs.variables()["bn1.num_batches_tracked"].int64_value(&[]), 1);
/// ```
///
/// # Panics
/// In the forward pass, like tch's layers: if the input is not `[N, num_features, H, W]`; and if, in training or
/// without running statistics, there is only one value per channel, which has no variance.
pub fn batch_norm2d<'a>(
    path: impl Borrow<Path<'a>>,
    num_features: i64,
    options: BatchNormOptions,
) -> BatchNorm {
    let inputs = Inputs { layer: "batch_norm2d", dimensions: 4..=4, shape: "[N, C, H, W]" };
    BatchNorm::new(path.borrow(), num_features, options, inputs)
}

/// `torch.nn.BatchNorm3d(num_features)`: [`batch_norm2d`] for volumes and videos `[N, num_features, D, H, W]`.
///
/// ```
/// # use tch::{Device, Tensor, kind::FLOAT_CPU, nn::{ModuleT, VarStore}};
/// # let vs = VarStore::new(Device::Cpu);
/// let layer = tch_parallel::nn::batch_norm3d(vs.root() / "norm", 3, Default::default());
/// let images = layer.forward_t(&Tensor::ones([2, 3, 4, 5, 6], FLOAT_CPU), true);
/// ```
pub fn batch_norm3d<'a>(
    path: impl Borrow<Path<'a>>,
    num_features: i64,
    options: BatchNormOptions,
) -> BatchNorm {
    let inputs = Inputs { layer: "batch_norm3d", dimensions: 5..=5, shape: "[N, C, D, H, W]" };
    BatchNorm::new(path.borrow(), num_features, options, inputs)
}

impl BatchNorm {
    /// The layer behind all these functions, and behind layers that compute statistics of their own.
    pub fn new(
        path: &Path<'_>,
        num_features: i64,
        options: BatchNormOptions,
        inputs: Inputs,
    ) -> BatchNorm {
        let affine = |name, value| {
            options.affine.then(|| path.var(name, &[num_features], Init::Const(value)))
        };
        let ws = affine("weight", 1.0);
        let bs = affine("bias", 0.0);
        let running_stats = options.track_running_stats.then(|| RunningStats {
            mean: path.zeros_no_train("running_mean", &[num_features]),
            var: path.ones_no_train("running_var", &[num_features]),
            num_batches_tracked: path.add(
                "num_batches_tracked",
                Tensor::zeros([0i64; 0], (Kind::Int64, path.device())),
                false,
            ),
        });
        BatchNorm { ws, bs, running_stats, options, inputs }
    }

    /// What [`ModuleT::forward_t`] does once the input's shape is known to be right.
    ///
    /// # Errors
    /// libtorch's, for example if memory runs out.
    pub fn normalize(&self, xs: &Tensor, train: bool) -> Result<Tensor, TchError> {
        let momentum = match &self.running_stats {
            Some(stats) if train => stats.count_batch(self.options.momentum),
            _ => self.options.momentum,
        };
        Tensor::f_batch_norm(
            xs,
            self.ws.as_ref(),
            self.bs.as_ref(),
            self.running_stats.as_ref().map(|stats| &stats.mean),
            self.running_stats.as_ref().map(|stats| &stats.var),
            train || self.running_stats.is_none(),
            momentum,
            self.options.eps,
            // PyTorch's default; it only matters with cuDNN.
            true,
        )
    }
}

impl RunningStats {
    /// Counts a batch, and returns what it weighs in the moving averages: `momentum`, or in
    /// [`update_bn`](super::update_bn()) the same as each before it.
    pub fn count_batch(&self, momentum: f64) -> f64 {
        let number = self.num_batches_tracked.shallow_clone().g_add_scalar_(1);
        weight(momentum, &number)
    }
}

impl ModuleT for BatchNorm {
    fn forward_t(&self, xs: &Tensor, train: bool) -> Tensor {
        let size = xs.size();
        let Inputs { layer, dimensions, shape } = &self.inputs;
        assert!(dimensions.contains(&size.len()), "{layer} takes {shape}, but got {size:?}");
        let of_batch = train || self.running_stats.is_none();
        assert!(
            !of_batch || size[0] * size[2..].iter().product::<i64>() != 1,
            "with statistics of its batch {layer} needs more than one value per channel, but got \
             {size:?}"
        );
        self.normalize(xs, train).unwrap_or_else(|error| panic!("{error}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use tch::{Device, nn::VarStore};
    use tch_parallel_base::error::of_panic;

    /// Two channels: 1, 3 and 10, 30.
    fn images() -> Tensor {
        Tensor::from_slice(&[1f32, 3.0, 10.0, 30.0]).view([1, 2, 1, 2])
    }

    fn values(tensor: &Tensor) -> Vec<f32> {
        Vec::try_from(tensor.view([-1])).unwrap()
    }

    fn layer(options: BatchNormOptions) -> (VarStore, BatchNorm) {
        let vs = VarStore::new(Device::Cpu);
        let layer = batch_norm2d(vs.root(), 2, options);
        (vs, layer)
    }

    #[test]
    fn without_running_statistics_an_evaluation_uses_its_batch() {
        let options =
            BatchNormOptions { track_running_stats: false, affine: false, ..Default::default() };
        let (vs, layer) = layer(options);
        assert!(vs.is_empty());
        assert_eq!(layer.forward_t(&images(), false), layer.forward_t(&images(), true));
    }

    #[test]
    fn rows_sequences_and_volumes_are_normalised_as_images_are() {
        let options = BatchNormOptions { eps: 0.0, ..Default::default() };
        let vs = VarStore::new(Device::Cpu);
        let one = batch_norm1d(vs.root() / "one", 2, options);
        let three = batch_norm3d(vs.root() / "three", 2, options);
        let rows = Tensor::from_slice(&[1f32, 10.0, 3.0, 30.0]).view([2, 2]);
        assert_eq!(values(&one.forward_t(&rows, true)), [-1.0, -1.0, 1.0, 1.0]);
        let sequence = images().view([1, 2, 2]);
        assert_eq!(values(&one.forward_t(&sequence, true)), [-1.0, 1.0, -1.0, 1.0]);
        let volume = images().view([1, 2, 1, 1, 2]);
        assert_eq!(values(&three.forward_t(&volume, true)), [-1.0, 1.0, -1.0, 1.0]);
    }

    #[test]
    fn inputs_of_another_shape_and_batches_without_a_variance_are_refused() {
        let (_vs, images) = layer(BatchNormOptions::default());
        let options = BatchNormOptions { track_running_stats: false, ..Default::default() };
        let (vs, untracked) = layer(options);
        let rows = batch_norm1d(vs.root() / "rows", 2, BatchNormOptions::default());
        let no_batch = "batch_norm2d takes [N, C, H, W], but got [2, 1, 2]";
        let one_value = "batch_norm2d needs more than one value per channel, but got [1, 2, 1, 1]";
        for (layer, size, train, expected) in [
            (&images, &[2i64, 1, 2][..], true, no_batch),
            (&rows, &[1, 2, 1, 2], true, "takes [N, C] or [N, C, L], but got [1, 2, 1, 2]"),
            (&rows, &[1, 2], true, "batch_norm1d needs more than one value per channel, but got"),
            (&images, &[1, 2, 1, 1], true, one_value),
            (&untracked, &[1, 2, 1, 1], false, one_value),
        ] {
            let xs = Tensor::zeros(size, (Kind::Float, Device::Cpu));
            let pass = AssertUnwindSafe(|| layer.forward_t(&xs, train));
            let message = of_panic(&*catch_unwind(pass).unwrap_err());
            assert!(message.contains(expected), "{message}");
        }
    }
}
