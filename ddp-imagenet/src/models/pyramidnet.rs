//! PyramidNet, whose blocks grow wider one by one, for images of 32 × 32 pixels.

use super::residual::{BlockShape, ConvNorm, Residual, convs_per_block, init_convs};
use std::iter::{once, successors};
use tch::Tensor;
use tch::nn::{ModuleT, Path, SequentialT, seq_t};
use tch_parallel::nn::{LinearOptions, NormLayer, linear};

/// Channels before the first block.
const STEM_CHANNELS: i64 = 16;

/// Each stage but the first begins by halving the image.
const STAGES: usize = 3;

/// Height and width of the images.
pub(super) const IMAGE_SIZE: i64 = 32;

/// Which PyramidNet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PyramidNetOptions {
    /// Blocks in each of the three stages; the paper counts layers, see [`depth`](Self::depth).
    pub blocks_per_stage: usize,
    /// α of the paper: the number of channels that all blocks together add.
    pub alpha: u32,
    /// Whether a block has three convolutions instead of two, and four times as many channels as its width.
    pub bottleneck: bool,
}

impl PyramidNetOptions {
    /// The network of the tutorial's figures: 24,253,410 parameters, 16 to 271 channels.
    ///
    /// The tutorial calls it PyramidNet-110 with α = 270. But dnddnjs/pytorch-multigpu, where its
    /// figures come from, builds 17 blocks a stage instead of 18 and still widens each by 270/54 = 5
    /// channels. That is depth 104 and α = 255 (S4.43).
    pub const TUTORIAL: PyramidNetOptions =
        PyramidNetOptions { blocks_per_stage: 17, alpha: 255, bottleneck: false };

    /// The number of layers with weights, as the paper counts them.
    pub fn depth(self) -> usize {
        2 + STAGES * self.blocks_per_stage * convs_per_block(self.bottleneck)
    }

    /// Blocks in each stage of a network of this depth, or `None` if there is no such network.
    pub fn blocks_per_stage(depth: usize, bottleneck: bool) -> Option<usize> {
        let layers = STAGES * convs_per_block(bottleneck);
        (depth > 2 && (depth - 2).is_multiple_of(layers)).then(|| (depth - 2) / layers)
    }

    /// The width of every block, from the first stage to the last.
    fn widths(self) -> impl Iterator<Item = i64> {
        let blocks = STAGES * self.blocks_per_stage;
        let added = f64::from(self.alpha) / blocks as f64;
        // Python's additions and Python's `round`: with others, a block could be a channel wider.
        successors(Some(STEM_CHANNELS as f64), move |width| Some(width + added))
            .skip(1)
            .take(blocks)
            .map(|width| width.round_ties_even() as i64)
    }

    /// PyramidNet, as dnddnjs/pytorch-multigpu builds it: maps images `[N, 3, 32, 32]` to logits `[N, num_classes]`.
    ///
    /// The variables have that repository's names and order, and the same seed gives its weights. Han et
    /// al., "Deep Pyramidal Residual Networks" (2017).
    ///
    /// # Panics
    /// In the last layer, for images of another size.
    pub fn build(self, path: &Path<'_>, num_classes: i64, norm_layer: &NormLayer) -> SequentialT {
        let stem =
            ConvNorm::new(path / "conv1", path / "bn1", 3, (STEM_CHANNELS, 3, 1), norm_layer);
        let mut channels = STEM_CHANNELS;
        let mut blocks = Vec::new();
        for (index, width) in self.widths().enumerate() {
            let (stage, index) = (index / self.blocks_per_stage, index % self.blocks_per_stage);
            let path = path / format!("layer{}", stage + 1) / index;
            let stride = if stage > 0 && index == 0 { 2 } else { 1 };
            let shape = BlockShape { channels, width, stride, bottleneck: self.bottleneck };
            blocks.push(Block::new(&path, shape, norm_layer));
            channels = shape.out_channels();
        }
        let bn_out = norm_layer.build(path / "bn_out", channels);
        let fc_out = linear(path / "fc_out", channels, num_classes, LinearOptions::default());
        init_convs(once(&stem).chain(blocks.iter().flat_map(|block| &block.residual.0)));

        let mut net = seq_t().add_fn_t(move |x, train| stem.forward_t(x, train));
        for block in blocks {
            net = net.add_fn_t(move |x, train| block.forward_t(x, train));
        }
        net.add_fn_t(move |x, train| bn_out.forward_t(x, train).relu_())
            .add_fn(|x| x.avg_pool2d([IMAGE_SIZE / 4; 2], [1, 1], [0, 0], false, true, None))
            .add_fn(Tensor::flat_view)
            .add(fc_out)
    }
}

/// Adds what its convolutions make of its input to the input itself, which is padded with channels of zeros.
struct Block {
    /// Normalises the input, without a ReLU after it.
    bn1: Box<dyn ModuleT>,
    residual: Residual,
    added_channels: i64,
    stride: i64,
}

impl Block {
    fn new(path: &Path<'_>, shape: BlockShape, norm_layer: &NormLayer) -> Block {
        Block {
            bn1: norm_layer.build(path / "bn1", shape.channels),
            residual: Residual::new(path, shape, 2, norm_layer),
            added_channels: shape.out_channels() - shape.channels,
            stride: shape.stride,
        }
    }

    // ANCHOR: block
    fn forward_t(&self, x: &Tensor, train: bool) -> Tensor {
        let mut out = self.residual.forward_t(&self.bn1.forward_t(x, train), train);
        out += self.shortcut(x);
        out
    }

    fn shortcut(&self, x: &Tensor) -> Tensor {
        let x = x.constant_pad_nd([0, 0, 0, 0, 0, self.added_channels]);
        if self.stride == 1 {
            return x;
        }
        x.avg_pool2d([self.stride; 2], [self.stride; 2], [0, 0], true, true, None)
    }
    // ANCHOR_END: block
}

#[cfg(test)]
mod tests {
    use super::*;
    use exhibit_kit::weights::parameters;
    use tch::{Device, nn::VarStore};

    #[test]
    fn the_tutorials_network_has_the_numbers_of_its_companion_repository() {
        let vs = VarStore::new(Device::Cpu);
        let _ = PyramidNetOptions::TUTORIAL.build(&vs.root(), 10, &NormLayer::BatchNorm);
        assert_eq!((parameters(&vs), vs.trainable_variables().len()), (24_253_410, 415));
        let variables = vs.variables();
        let count = |end| variables.keys().filter(|name| name.ends_with(end)).count();
        assert_eq!(count("running_mean"), 155);
        // One in each block.
        assert_eq!(count(".conv1.weight"), 51);
        assert_eq!(PyramidNetOptions::TUTORIAL.depth(), 104);
    }

    #[test]
    fn there_is_not_a_network_of_every_depth() {
        let blocks = |depth, bottleneck| PyramidNetOptions::blocks_per_stage(depth, bottleneck);
        let expected = [None, None, Some(1), None, Some(2)];
        assert_eq!([2, 7, 8, 9, 14].map(|depth| blocks(depth, false)), expected);
        assert_eq!([2, 8, 11, 14].map(|depth| blocks(depth, true)), [None, None, Some(1), None]);
    }
}
