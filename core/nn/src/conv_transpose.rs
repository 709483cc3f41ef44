//! Transposed convolutions with PyTorch's initial values: `torch.nn.ConvTranspose1d`, 2d and 3d.

use super::conv::{layer_functions, variables};
use std::borrow::Borrow;
use tch::{Tensor, nn::Module, nn::Path};
use tch_parallel_base::options;

options! {
    /// Keyword arguments of `nn.ConvTranspose1d`, 2d and 3d, with PyTorch's defaults, for all dimensions.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct ConvTransposeOptions {
        /// The distance between the places of neighbouring inputs: 2 doubles the image.
        pub stride: i64 = 1,
        /// How many pixels are cut off every side of the output.
        pub padding: i64 = 0,
        /// How many pixels are then added on one side of each dimension, below `stride`.
        pub output_padding: i64 = 0,
        /// The number of groups into which the channels are split, each with its own kernels.
        pub groups: i64 = 1,
        /// Whether to add a bias to each output channel.
        pub bias: bool = true,
        /// The distance between the kernel's elements.
        pub dilation: i64 = 1,
    }
}

/// A transposed convolution over N dimensions; see [`conv_transpose2d`].
#[derive(Debug)]
pub struct ConvTranspose<const N: usize> {
    /// `[in_channels, out_channels / groups, kernel_size, …]`
    pub ws: Tensor,
    /// `[out_channels]`
    pub bs: Option<Tensor>,
    options: ConvTransposeOptions,
}

/// See [`conv_transpose1d`].
pub type ConvTranspose1d = ConvTranspose<1>;
/// See [`conv_transpose2d`].
pub type ConvTranspose2d = ConvTranspose<2>;
/// See [`conv_transpose3d`].
pub type ConvTranspose3d = ConvTranspose<3>;

layer_functions! {
    /// `torch.nn.ConvTranspose1d(in_channels, out_channels, kernel_size)`: [`conv_transpose2d`] for
    /// sequences `[N, in_channels, L]`.
    pub fn conv_transpose1d(ConvTransposeOptions) -> ConvTranspose1d;

    /// `torch.nn.ConvTranspose2d(in_channels, out_channels, kernel_size)`: maps images `[N, in_channels, H, W]` to
    /// larger ones, as the backward pass of [`conv2d`](super::conv2d) with these options maps its output's gradient.
    ///
    /// ```
    /// use tch::{Device, Kind, Tensor, nn::VarStore};
    /// use tch_parallel::nn::{ConvTransposeOptions, conv_transpose2d};
    ///
    /// let vs = VarStore::new(Device::Cpu);
    /// let options = ConvTransposeOptions { stride: 2, padding: 1, ..Default::default() };
    /// let layer = conv_transpose2d(vs.root() / "up", 64, 3, 4, options);
    /// let images = Tensor::ones([8, 64, 16, 16], (Kind::Float, Device::Cpu));
    /// assert_eq!(images.apply(&layer).size(), [8, 3, 32, 32]);
    /// ```
    ///
    /// # Panics
    /// Those of [`conv2d`](super::conv2d).
    pub fn conv_transpose2d(ConvTransposeOptions) -> ConvTranspose2d;

    /// `torch.nn.ConvTranspose3d(in_channels, out_channels, kernel_size)`: [`conv_transpose2d`] for
    /// volumes and videos `[N, in_channels, D, H, W]`.
    pub fn conv_transpose3d(ConvTransposeOptions) -> ConvTranspose3d;
}

impl<const N: usize> ConvTranspose<N> {
    fn new(
        path: &Path<'_>,
        channels: [i64; 2],
        kernel_size: i64,
        options: ConvTransposeOptions,
    ) -> Self {
        let ConvTransposeOptions { groups, bias, .. } = options;
        let (ws, bs) = variables(path, channels, [kernel_size; N], groups, bias, true);
        ConvTranspose { ws, bs, options }
    }
}

impl<const N: usize> Module for ConvTranspose<N> {
    fn forward(&self, xs: &Tensor) -> Tensor {
        let ConvTransposeOptions { stride, padding, output_padding, groups, bias: _, dilation } =
            self.options;
        let (stride, padding) = ([stride; N], [padding; N]);
        let (added, dilation) = ([output_padding; N], [dilation; N]);
        let bs = self.bs.as_ref();
        match N {
            1 => xs.conv_transpose1d(&self.ws, bs, stride, padding, added, groups, dilation),
            2 => xs.conv_transpose2d(&self.ws, bs, stride, padding, added, groups, dilation),
            _ => xs.conv_transpose3d(&self.ws, bs, stride, padding, added, groups, dilation),
        }
    }
}
