//! Full MNIST.

use super::{RemoteFile, cache_dir, fetch_missing};
use crate::Result;
use std::path::{Path, PathBuf};

/// The mirrors of MNIST; the original server asks not to be used for downloads.
pub const MNIST_MIRRORS: [&str; 2] = [
    "https://ossci-datasets.s3.amazonaws.com/mnist",
    "https://storage.googleapis.com/cvdf-datasets/mnist",
];

const FILES: [RemoteFile; 4] = [
    RemoteFile { name: "train-images-idx3-ubyte.gz", md5: "f68b3c2dcbeaaa9fbdd348bbdeb94873" },
    RemoteFile { name: "train-labels-idx1-ubyte.gz", md5: "d53e105ee54ea40749a09fcbcd1e9432" },
    RemoteFile { name: "t10k-images-idx3-ubyte.gz", md5: "9fb629c4189551a2d022fa330f9573f3" },
    RemoteFile { name: "t10k-labels-idx1-ubyte.gz", md5: "ec29112dd5afa0611ce80d1b7f02629c" },
];

/// Makes sure that MNIST is in the user's cache, in `mnist`, and returns the directory, which
/// [`Mnist::from_dir`](crate::Mnist::from_dir) reads.
///
/// # Errors
/// [`Error::Io`](crate::Error::Io) if the cache is not writable, or if no mirror has the right file, with the reason
/// for each; [`Error::Environment`](crate::Error::Environment) if neither HOME nor XDG_CACHE_HOME is set.
pub fn mnist() -> Result<PathBuf> {
    let dir = cache_dir("mnist")?;
    mnist_from(&MNIST_MIRRORS, &dir)?;
    Ok(dir)
}

/// Like [`mnist`], from other mirrors (tried in this order) and into another directory.
pub fn mnist_from(mirrors: &[&str], dir: &Path) -> Result<()> {
    fetch_missing(&FILES, mirrors, dir)
}
