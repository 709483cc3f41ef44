//! The releases of PyTorch that the programs can be built with.

use clap::builder::{PossibleValuesParser, TypedValueParser};

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Release {
    /// The version of PyTorch, and so of libtorch.
    pub(crate) torch: &'static str,
    /// The version of tch that is made for it, or for its successor.
    pub(crate) tch: &'static str,
    pub(crate) torchvision: &'static str,
}

/// The newest first.
const RELEASES: [Release; 4] = [
    Release { torch: "2.13.0", tch: "0.26.0", torchvision: "0.28.0" },
    Release { torch: "2.12.1", tch: "0.26.0", torchvision: "0.27.1" },
    Release { torch: "2.12.0", tch: "0.26.0", torchvision: "0.27.0" },
    Release { torch: "2.11.0", tch: "0.24.0", torchvision: "0.26.0" },
];

impl Release {
    /// The release whose tch is in Cargo.lock, and whose libtorch cargo looks for (`.cargo/config.toml`).
    pub(crate) const DEFAULT: &'static Self = &RELEASES[0];

    pub(crate) fn parser() -> impl TypedValueParser<Value = &'static Self> {
        PossibleValuesParser::new(RELEASES.each_ref().map(|release| release.torch))
            .map(|torch| Self::of(&torch).unwrap_or(Self::DEFAULT))
    }

    pub(crate) fn of(torch: &str) -> Option<&'static Self> {
        RELEASES.iter().find(|release| release.torch == torch)
    }

    /// The newest release with the same functions as this version: the third number may differ.
    pub(crate) fn like(torch: &str) -> Option<&'static Self> {
        let minor = |version: &str| version.rsplit_once('.').map(|(minor, _)| minor.to_owned());
        RELEASES.iter().find(|release| minor(release.torch) == minor(torch))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{checkout::checkout, files::read};

    #[test]
    fn the_checkout_is_for_the_newest_release() {
        let read = |path| read(&checkout().join(path));
        let Release { torch, tch, .. } = Release::DEFAULT;
        let config = read(".cargo/config.toml").unwrap();
        assert!(config.contains(&format!("value = \".libtorch/{torch}/torch\"")), "{config}");
        // In a twin of the checkout, the checkout's own is kept under this name.
        let lock = read("Cargo.lock.checkout").or_else(|_| read("Cargo.lock")).unwrap();
        for package in ["tch", "torch-sys"] {
            assert!(lock.contains(&format!("name = \"{package}\"\nversion = \"{tch}\"\n")));
        }
    }
}
