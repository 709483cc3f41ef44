//! A convolution over images: `torch.nn.Conv2d`.

use super::init::{default_bias, default_weight};
use std::borrow::Borrow;
use tch::Tensor;
use tch::nn::{Module, Path};

/// PyTorch's keyword arguments of `nn.Conv2d`, with its defaults; each holds for both dimensions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Conv2dOptions {
    /// How many pixels the kernel moves from one output to the next: 2 halves the image.
    pub stride: i64,
    /// How many zeros are put on every side: half the kernel keeps the size of the image.
    pub padding: i64,
    /// The distance of the kernel's pixels from each other.
    pub dilation: i64,
    /// Into how many parts the channels are split, each with kernels of its own.
    pub groups: i64,
    /// Whether something is added to each output channel; before a batch norm, which takes the
    /// mean away, it would be of no use.
    pub bias: bool,
}

impl Default for Conv2dOptions {
    fn default() -> Self {
        Conv2dOptions { stride: 1, padding: 0, dilation: 1, groups: 1, bias: true }
    }
}

/// See [`conv2d`].
#[derive(Debug)]
pub struct Conv2d {
    /// `[out_channels, in_channels / groups, kernel_size, kernel_size]`
    pub ws: Tensor,
    /// `[out_channels]`
    pub bs: Option<Tensor>,
    options: Conv2dOptions,
}

/// `torch.nn.Conv2d(in_channels, out_channels, kernel_size)`: maps images
/// `[N, in_channels, H, W]` to `[N, out_channels, H', W']`.
///
/// Registers and draws the weight, then the bias, as `Conv2d.reset_parameters` does; tch's own layer
/// does it the other way round, from another distribution.
///
/// ```
/// use tch::{Device, Kind, Tensor, nn::VarStore};
/// use tch_parallel::nn::{Conv2dOptions, conv2d};
///
/// let vs = VarStore::new(Device::Cpu);
/// let options = Conv2dOptions { stride: 2, padding: 1, ..Default::default() };
/// let layer = conv2d(vs.root() / "conv1", 3, 64, 3, options);
/// let images = Tensor::ones([8, 3, 32, 32], (Kind::Float, Device::Cpu));
/// assert_eq!(images.apply(&layer).size(), [8, 64, 16, 16]);
/// ```
///
/// # Panics
/// If `groups` is not at least 1 or does not divide both `in_channels` and `out_channels`; if tensors
/// of such shapes cannot be made; and in the forward pass for what they do not fit, as
/// tch's layers do.
pub fn conv2d<'a>(
    path: impl Borrow<Path<'a>>,
    in_channels: i64,
    out_channels: i64,
    kernel_size: i64,
    options: Conv2dOptions,
) -> Conv2d {
    let path = path.borrow();
    let groups = options.groups;
    assert!(groups >= 1, "groups is {groups}, but must be at least 1");
    for (name, channels) in [("in_channels", in_channels), ("out_channels", out_channels)] {
        assert!(
            channels % groups == 0,
            "{name} is {channels}, but must be divisible by groups, {groups}"
        );
    }
    let kernel = [out_channels, in_channels / groups, kernel_size, kernel_size];
    let fan_in = kernel[1..].iter().product();
    let ws = path.var("weight", &kernel, default_weight(fan_in));
    let bs = options.bias.then(|| path.var("bias", &[out_channels], default_bias(fan_in)));
    Conv2d { ws, bs, options }
}

impl Module for Conv2d {
    fn forward(&self, xs: &Tensor) -> Tensor {
        let Conv2dOptions { stride, padding, dilation, groups, bias: _ } = self.options;
        xs.conv2d(&self.ws, self.bs.as_ref(), [stride; 2], [padding; 2], [dilation; 2], groups)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tch::{Device, Kind, nn::VarStore};

    fn output(options: Conv2dOptions) -> Vec<i64> {
        let vs = VarStore::new(Device::Cpu);
        let images = Tensor::zeros([7, 4, 9, 9], (Kind::Float, Device::Cpu));
        conv2d(vs.root(), 4, 6, 3, options).forward(&images).size()
    }

    #[test]
    fn images_become_smaller_as_the_options_say() {
        let options = Conv2dOptions::default();
        assert_eq!(output(options), [7, 6, 7, 7]);
        assert_eq!(output(Conv2dOptions { padding: 1, ..options }), [7, 6, 9, 9]);
        assert_eq!(output(Conv2dOptions { stride: 2, ..options }), [7, 6, 4, 4]);
        assert_eq!(output(Conv2dOptions { dilation: 2, ..options }), [7, 6, 5, 5]);
    }

    #[test]
    fn groups_see_only_their_own_channels() {
        let vs = VarStore::new(Device::Cpu);
        let options = Conv2dOptions { groups: 2, bias: false, ..Default::default() };
        assert_eq!(conv2d(vs.root(), 4, 6, 3, options).ws.size(), [6, 2, 3, 3]);
        assert_eq!(vs.len(), 1);
    }

    #[test]
    #[should_panic = "groups is 0, but must be at least 1"]
    fn no_groups_at_all_are_refused() {
        output(Conv2dOptions { groups: 0, ..Default::default() });
    }

    #[test]
    #[should_panic = "in_channels is 4, but must be divisible by groups, 3"]
    fn channels_that_do_not_go_into_the_groups_are_refused() {
        output(Conv2dOptions { groups: 3, ..Default::default() });
    }
}
