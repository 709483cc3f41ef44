//! The file of a checkpoint.

use super::destination::replace;
use crate::named_tensors::{self, Metadata, NamedTensors};
use crate::{Error, Result};
use std::fs;
use std::path::Path;

/// Writes a file that takes the place of `path` when it is whole.
pub(super) fn write(path: &Path, tensors: &NamedTensors, metadata: Option<Metadata>) -> Result<()> {
    replace(path, |temporary| {
        named_tensors::to_file(tensors, metadata, temporary).map_err(|error| match error {
            // Nobody knows the other name.
            Error::Io { operation, source, .. } => {
                Error::Io { operation, path: path.into(), source }
            }
            other => other,
        })
    })
}

/// Reads what [`write`], or Python, has written.
pub(super) fn read(path: &Path) -> Result<(NamedTensors, Metadata)> {
    let bytes = fs::read(path).map_err(Error::io("read", path))?;
    named_tensors::from_bytes(&bytes).map_err(|error| Error::Format {
        path: path.into(),
        found: format!("no whole safetensors file ({error})"),
        expected: "one that `save`, or safetensors in Python, has written to its end".into(),
    })
}
