//! ResNet, as torchvision builds it: variables, initial values and numbers are torchvision's.

use super::residual::{BlockShape, ConvNorm, Residual, convs_per_block, init_convs};
use std::iter::once;
use tch::{Tensor, nn::Path, nn::SequentialT, nn::seq_t};
use tch_parallel::nn::{LinearOptions, NormLayer, linear};

/// Channels of the blocks of the first stage; each further stage has twice as many.
const PLANES: i64 = 64;

/// Which ResNet: torchvision's arguments `block` and `layers`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResNetOptions {
    /// Whether a block narrows the channels to a quarter, convolves, and widens them again (`Bottleneck`), instead of
    /// convolving twice at full width (`BasicBlock`). Deep networks would cost too much otherwise.
    pub bottleneck: bool,
    /// Blocks in each of the four stages.
    pub layers: [usize; 4],
}

/// The five of the paper: ResNet-18, 34, 50, 101 and 152.
pub const RESNETS: [ResNetOptions; 5] = [
    ResNetOptions { bottleneck: false, layers: [2, 2, 2, 2] },
    ResNetOptions { bottleneck: false, layers: [3, 4, 6, 3] },
    ResNetOptions { bottleneck: true, layers: [3, 4, 6, 3] },
    ResNetOptions { bottleneck: true, layers: [3, 4, 23, 3] },
    ResNetOptions { bottleneck: true, layers: [3, 8, 36, 3] },
];

impl ResNetOptions {
    /// The number of layers with weights, as the paper counts them.
    pub fn depth(self) -> usize {
        2 + convs_per_block(self.bottleneck) * self.layers.iter().sum::<usize>()
    }

    /// `torchvision.models.ResNet(block, layers, num_classes, norm_layer=norm_layer)`: maps images
    /// `[N, 3, H, W]` to logits `[N, num_classes]`. H and W are 224 in the paper.
    ///
    /// The same seed gives torchvision's weights, and the variables have the names and the order of its
    /// `state_dict`, so that either side reads what the other saves. He et al., "Deep Residual Learning
    /// for Image Recognition" (2015), with the stride of a bottleneck in its middle convolution.
    pub fn build(self, path: &Path<'_>, num_classes: i64, norm_layer: &NormLayer) -> SequentialT {
        let stem = ConvNorm::new(path / "conv1", path / "bn1", 3, (PLANES, 7, 2), norm_layer);
        let mut channels = PLANES;
        let mut blocks = Vec::new();
        for (stage, count) in self.layers.into_iter().enumerate() {
            let path = path / format!("layer{}", stage + 1);
            for index in 0..count {
                let stride = if stage > 0 && index == 0 { 2 } else { 1 };
                let (width, bottleneck) = (PLANES << stage, self.bottleneck);
                let shape = BlockShape { channels, width, stride, bottleneck };
                blocks.push(Block::new(&(&path / index), shape, norm_layer));
                channels = shape.out_channels();
            }
        }
        let fc = linear(path / "fc", channels, num_classes, LinearOptions::default());
        // In the order of torchvision's `modules()`.
        let convs =
            blocks.iter().flat_map(|block| block.residual.0.iter().chain(&block.downsample));
        init_convs(once(&stem).chain(convs));

        let mut net = seq_t()
            .add_fn_t(move |x, train| stem.forward_t(x, train).relu_())
            .add_fn(|x| x.max_pool2d([3, 3], [2, 2], [1, 1], [1, 1], false));
        for block in blocks {
            net = net.add_fn_t(move |x, train| block.forward_t(x, train));
        }
        net.add_fn(|x| x.adaptive_avg_pool2d([1, 1]).flatten(1, -1)).add(fc)
    }
}

/// Adds what its convolutions make of its input to the input itself.
struct Block {
    residual: Residual,
    /// Gives the input the shape of the output where they differ.
    downsample: Option<ConvNorm>,
}

impl Block {
    fn new(path: &Path<'_>, shape: BlockShape, norm_layer: &NormLayer) -> Block {
        let BlockShape { channels, stride, .. } = shape;
        let residual = Residual::new(path, shape, 1, norm_layer);
        // torchvision draws its values first and registers it last. The order of default draws does
        // not show: the generator has moved on by their number.
        let downsample = (stride != 1 || channels != shape.out_channels()).then(|| {
            let (path, conv) = (path / "downsample", (shape.out_channels(), 1, stride));
            ConvNorm::new(&path / 0, &path / 1, channels, conv, norm_layer)
        });
        Block { residual, downsample }
    }

    fn forward_t(&self, x: &Tensor, train: bool) -> Tensor {
        let mut out = self.residual.forward_t(x, train);
        match &self.downsample {
            Some(downsample) => out += downsample.forward_t(x, train),
            None => out += x,
        }
        out.relu_()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use exhibit_kit::weights::parameters;
    use tch::{Device, nn::VarStore};

    #[test]
    fn they_have_torchvisions_published_numbers_of_parameters() {
        assert_eq!(RESNETS.map(ResNetOptions::depth), [18, 34, 50, 101, 152]);
        let counts = RESNETS.map(|options| {
            let vs = VarStore::new(Device::Cpu);
            let _ = options.build(&vs.root(), 1000, &NormLayer::BatchNorm);
            parameters(&vs)
        });
        assert_eq!(counts, [11_689_512, 21_797_672, 25_557_032, 44_549_160, 60_192_808]);
    }
}
