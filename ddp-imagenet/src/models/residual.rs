//! What the blocks of both networks are made of: convolutions, each normalised.

use tch::{Tensor, nn::Module, nn::ModuleT, nn::Path};
use tch_parallel::nn::init::{FanInOut, Nonlinearity, kaiming_normal_};
use tch_parallel::nn::{Conv2d, ConvOptions, NormLayer, conv2d};

/// The shape of a block's input and of its convolutions.
#[derive(Debug, Clone, Copy)]
pub struct BlockShape {
    /// Channels of the input.
    pub channels: i64,
    pub width: i64,
    /// By which the block divides the height and width of the images.
    pub stride: i64,
    /// Whether the block convolves at its width between two convolutions of 1 × 1 pixel, the second
    /// of which gives it four times as many channels, instead of convolving twice.
    pub bottleneck: bool,
}

impl BlockShape {
    pub fn out_channels(self) -> i64 {
        if self.bottleneck { 4 * self.width } else { self.width }
    }

    /// (channels, kernel size, stride) of each convolution.
    fn convs(self) -> Vec<(i64, i64, i64)> {
        let BlockShape { width, stride, .. } = self;
        if self.bottleneck {
            vec![(width, 1, 1), (width, 3, stride), (self.out_channels(), 1, 1)]
        } else {
            vec![(width, 3, stride), (width, 3, 1)]
        }
    }
}

pub fn convs_per_block(bottleneck: bool) -> usize {
    if bottleneck { 3 } else { 2 }
}

/// A convolution and the normalisation of its output.
pub struct ConvNorm {
    pub conv: Conv2d,
    norm: Box<dyn ModuleT>,
}

impl ConvNorm {
    /// The image keeps its size, or has it divided by the stride.
    pub fn new(
        conv: Path<'_>,
        norm: Path<'_>,
        channels: i64,
        (out_channels, kernel_size, stride): (i64, i64, i64),
        norm_layer: &NormLayer,
    ) -> ConvNorm {
        let padding = kernel_size / 2;
        let options = ConvOptions { stride, padding, bias: false, ..Default::default() };
        let conv = conv2d(conv, channels, out_channels, kernel_size, options);
        ConvNorm { conv, norm: norm_layer.build(norm, out_channels) }
    }

    pub fn forward_t(&self, x: &Tensor, train: bool) -> Tensor {
        self.norm.forward_t(&self.conv.forward(x), train)
    }
}

/// What a block adds to its input: convolutions, each normalised, with a ReLU between two.
pub struct Residual(pub Vec<ConvNorm>);

impl Residual {
    /// `first` is the number in the name of the first normalisation: that of `bn1` or `bn2`.
    pub fn new(path: &Path<'_>, shape: BlockShape, first: usize, norm_layer: &NormLayer) -> Self {
        let mut channels = shape.channels;
        let mut layers = Vec::new();
        for (index, conv) in shape.convs().into_iter().enumerate() {
            let conv_path = path / format!("conv{}", 1 + index);
            let norm_path = path / format!("bn{}", first + index);
            layers.push(ConvNorm::new(conv_path, norm_path, channels, conv, norm_layer));
            channels = conv.0;
        }
        Residual(layers)
    }

    pub fn forward_t(&self, x: &Tensor, train: bool) -> Tensor {
        let out = self.0[0].forward_t(x, train);
        self.0[1..].iter().fold(out, |mut out, layer| layer.forward_t(&out.relu_(), train))
    }
}

/// Draws the initial weights of all convolutions, in the order of the original's `modules()`.
///
/// Call it once the whole network is built with the default initial values: if convolutions drew
/// their weights earlier, the generator would give the last layer other weights than in Python.
pub fn init_convs<'a>(layers: impl IntoIterator<Item = &'a ConvNorm>) {
    for layer in layers {
        kaiming_normal_(&layer.conv.ws, FanInOut::FanOut, Nonlinearity::Relu);
    }
}
