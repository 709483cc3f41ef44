//! The file of a checkpoint: weights alone, under the names of the model's variables, or a whole
//! training, whose tensors have a prefix each and whose metadata holds the rest.

use super::destination::replace;
use crate::named_tensors::{self, Metadata, NamedTensors};
use crate::{Error, Result};
use std::fs;
use std::path::Path;

/// The key in the file's `__metadata__` that holds everything in a training that is not a tensor.
pub(super) const HEADER: &str = "training";

/// The prefixes of a training's tensors.
pub(super) const MODEL: &str = "model.";
pub(super) const OPTIMIZER: &str = "optimizer.";
pub(super) const GENERATORS: &str = "rng.";

/// Writes a file that replaces `path` once it is complete.
pub(super) fn write(path: &Path, tensors: &NamedTensors, metadata: Option<Metadata>) -> Result<()> {
    replace(path, |temporary| {
        named_tensors::to_file(tensors, metadata, temporary).map_err(|error| match error {
            // The temporary name would mean nothing to the reader.
            Error::Io { operation, source, .. } => {
                Error::Io { operation, path: path.into(), source }
            }
            other => other,
        })
    })
}

/// Reads a file that [`write`] or Python has written.
pub(super) fn read(path: &Path) -> Result<(NamedTensors, Metadata)> {
    let bytes = fs::read(path).map_err(Error::io("read", path))?;
    named_tensors::from_bytes(&bytes).map_err(|error| {
        Error::format(
            path,
            format!("not a complete safetensors file ({error})"),
            "a file that `save` or safetensors in Python has written completely",
        )
    })
}

/// The weights in a file, whether or not it holds the rest of a training.
pub(super) fn weights(mut tensors: NamedTensors, metadata: &Metadata) -> NamedTensors {
    match metadata.contains_key(HEADER) {
        true => take(&mut tensors, MODEL),
        false => tensors,
    }
}

/// Removes the tensors with a prefix and returns them under their names without it.
pub(super) fn take(tensors: &mut NamedTensors, prefix: &str) -> NamedTensors {
    let names: Vec<_> = tensors.keys().filter(|name| name.starts_with(prefix)).cloned().collect();
    let taken = names.into_iter().filter_map(|name| {
        let tensor = tensors.remove(&name)?;
        Some((name[prefix.len()..].to_owned(), tensor))
    });
    taken.collect()
}
