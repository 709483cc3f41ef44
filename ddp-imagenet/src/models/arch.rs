//! Networks by name, as `-a` of PyTorch's ImageNet example accepts them.

use super::pyramidnet::{IMAGE_SIZE, PyramidNetOptions};
use super::resnet::{RESNETS, ResNetOptions};
use anyhow::{Context, Result, ensure};
use std::{fmt, str::FromStr};
use tch::nn::{Path, SequentialT};
use tch_parallel::nn::NormLayer;

/// The name of the tutorial's PyramidNet.
const PYRAMIDNET: &str = "pyramidnet";

/// A network's architecture: its name in a command line, and how it is built.
///
/// The names: `resnet18`, `resnet34`, `resnet50`, `resnet101` and `resnet152`, as in torchvision;
/// `pyramidnet` for the tutorial's; `pyramidnet110_a270` for one of depth 110 and α = 270, and
/// `pyramidnet164_a270_bn` for one of bottlenecks, of any depth and α that go together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arch {
    /// For images of any size.
    ResNet(ResNetOptions),
    /// For images of 32 × 32 pixels.
    PyramidNet(PyramidNetOptions),
}

impl Arch {
    /// Builds the network with `num_classes` outputs, every normalisation of it by `norm_layer`. It maps
    /// images `[N, 3, H, W]` to logits `[N, num_classes]`.
    pub fn build(&self, path: &Path<'_>, num_classes: i64, norm_layer: &NormLayer) -> SequentialT {
        match *self {
            Arch::ResNet(options) => options.build(path, num_classes, norm_layer),
            Arch::PyramidNet(options) => options.build(path, num_classes, norm_layer),
        }
    }

    /// Fails if the network does not take images of `size` × `size` pixels.
    pub fn check_image_size(&self, size: usize) -> Result<()> {
        ensure!(
            matches!(self, Arch::ResNet(_)) || size == IMAGE_SIZE as usize,
            "{self} takes images of {IMAGE_SIZE}×{IMAGE_SIZE} pixels, not {size}×{size}: set --image-size 32"
        );
        Ok(())
    }
}

impl FromStr for Arch {
    type Err = anyhow::Error;

    fn from_str(name: &str) -> Result<Self> {
        let resnets = RESNETS.map(Arch::ResNet);
        let resnet = resnets.into_iter().find(|resnet| resnet.to_string() == name);
        let options = || name.strip_prefix(PYRAMIDNET).and_then(pyramidnet_options);
        resnet.or_else(|| options().map(Arch::PyramidNet)).with_context(|| {
            let resnets = resnets.map(|resnet| resnet.to_string()).join(", ");
            format!(
                "no network is called {name:?}; expected {resnets}, {PYRAMIDNET}, {PYRAMIDNET}110_a270 \
                 or another of a depth 6n + 2, or {PYRAMIDNET}164_a270_bn or another of a depth 9n + 2"
            )
        })
    }
}

/// Reads what follows the word `pyramidnet`.
fn pyramidnet_options(name: &str) -> Option<PyramidNetOptions> {
    if name.is_empty() {
        return Some(PyramidNetOptions::TUTORIAL);
    }
    let (name, bottleneck) = name.strip_suffix("_bn").map_or((name, false), |name| (name, true));
    let (depth, alpha) = name.split_once("_a")?;
    let blocks_per_stage = PyramidNetOptions::blocks_per_stage(depth.parse().ok()?, bottleneck)?;
    Some(PyramidNetOptions { blocks_per_stage, alpha: alpha.parse().ok()?, bottleneck })
}

impl fmt::Display for Arch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Arch::ResNet(options) => write!(f, "resnet{}", options.depth()),
            Arch::PyramidNet(PyramidNetOptions::TUTORIAL) => f.write_str(PYRAMIDNET),
            Arch::PyramidNet(options) => {
                let bottleneck = if options.bottleneck { "_bn" } else { "" };
                write!(f, "{PYRAMIDNET}{}_a{}{bottleneck}", options.depth(), options.alpha)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tch::{Device, Kind, Tensor, nn::ModuleT, nn::VarStore};

    #[test]
    fn a_name_is_read_as_it_is_written() {
        let written = |name: &str| name.parse::<Arch>().unwrap().to_string();
        let names = "resnet18 resnet34 resnet50 resnet101 resnet152 \
                     pyramidnet pyramidnet110_a270 pyramidnet164_a270_bn";
        names.split(' ').for_each(|name| assert_eq!(written(name), name));
        // The tutorial's network has a second name.
        assert_eq!(written("pyramidnet104_a255"), "pyramidnet");
    }

    #[test]
    fn an_unknown_name_is_answered_with_those_that_are_known() {
        let error = "resnet19".parse::<Arch>().unwrap_err().to_string();
        let start = "no network is called \"resnet19\"; expected resnet18, resnet34, ";
        assert!(error.starts_with(start), "{error}");
        for name in ["ResNet18", "pyramidnet_a270", "pyramidnet111_a270", "pyramidnet111_a270_bn"] {
            assert!(name.parse::<Arch>().is_err(), "{name}");
        }
    }

    #[test]
    fn images_of_another_size_are_refused() {
        let [resnet, pyramidnet] =
            ["resnet18", "pyramidnet8_a6"].map(|it| it.parse::<Arch>().unwrap());
        let refusal = |size| pyramidnet.check_image_size(size).unwrap_err().to_string();
        let expected =
            "pyramidnet8_a6 takes images of 32×32 pixels, not 64×64: set --image-size 32";
        assert_eq!(refusal(64), expected);
        for (arch, size) in [(pyramidnet, 32), (resnet, 32), (resnet, 64)] {
            arch.check_image_size(size).unwrap();
        }
    }

    #[test]
    fn every_network_has_as_many_outputs_as_classes() {
        for (name, size) in [("resnet18", 75), ("resnet50", 75), ("pyramidnet8_a6", 32)] {
            let vs = VarStore::new(Device::Cpu);
            let arch: Arch = name.parse().unwrap();
            let model = arch.build(&vs.root(), 7, &NormLayer::BatchNorm);
            let images = Tensor::zeros([2, 3, size, size], (Kind::Float, Device::Cpu));
            assert_eq!(model.forward_t(&images, true).size(), [2, 7], "{name}");
        }
    }
}
