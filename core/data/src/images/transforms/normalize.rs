//! Normalisation: bytes become floats with mean 0 and standard deviation 1.

use crate::{Result, check};

/// Mean and standard deviation of a data set for each channel, with 0 for black and 1 for full colour. A byte x becomes
/// `(x / 255 − mean) / std`: `torchvision.transforms.ToTensor()` and `Normalize(mean, std)`, to the last bit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Normalize {
    /// Subtracted first.
    pub mean: [f32; 3],
    /// Divided by afterwards.
    pub std: [f32; 3],
}

impl Normalize {
    /// ImageNet's, from PyTorch's own examples.
    pub const IMAGENET: Self = Self { mean: [0.485, 0.456, 0.406], std: [0.229, 0.224, 0.225] };
    /// CIFAR-10's, from its tutorials. The standard deviations are those of single images, averaged over all images.
    pub const CIFAR10: Self =
        Self { mean: [0.4914, 0.4822, 0.4465], std: [0.2023, 0.1994, 0.2010] };
    /// MNIST's, for unpadded images.
    pub const MNIST: Self = Self { mean: [0.1307; 3], std: [0.3081; 3] };
    /// Fashion-MNIST's, for unpadded images.
    pub const FASHION_MNIST: Self = Self { mean: [0.2860; 3], std: [0.3530; 3] };

    /// The normalised value of each of the 256 bytes, for each channel.
    pub(crate) fn table(self) -> Result<[[f32; 256]; 3]> {
        for (mean, std) in self.mean.into_iter().zip(self.std) {
            let expected = "finite and not 0, because pixels are divided by it";
            check(std != 0.0 && std.is_finite(), "std", std, expected)?;
            check(mean.is_finite(), "mean", mean, "finite")?;
        }
        Ok(std::array::from_fn(|channel| {
            let (mean, std) = (self.mean[channel], self.std[channel]);
            // Two divisions and a subtraction in 32 bits, in torchvision's order.
            std::array::from_fn(|byte| (byte as f32 / 255.0 - mean) / std)
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_divided_by_is_refused() {
        for std in [0.0, f32::NAN, f32::INFINITY] {
            let error = Normalize { std: [1.0, std, 1.0], ..Normalize::IMAGENET }.table();
            let expected = "but must be finite and not 0, because pixels are divided by it";
            assert_eq!(error.unwrap_err().to_string(), format!("std is {std}, {expected}"));
        }
        let error = Normalize { mean: [f32::NAN; 3], ..Normalize::IMAGENET }.table().unwrap_err();
        assert_eq!(error.to_string(), "mean is NaN, but must be finite");
    }
}
