//! The file of a checkpoint: weights alone, under the names of the model's variables, or a whole
//! training, whose tensors have a prefix each and whose metadata holds the rest.

use super::destination::replace;
use super::pytorch;
use crate::{Error, Result};
use std::fs;
use std::path::Path;
use tch::Tensor;
use tch_parallel_base::named_tensors::{self, Metadata, NamedTensors};

/// The key in the file's `__metadata__` that holds everything in a training that is not a tensor.
pub(super) const HEADER: &str = "training";

/// The prefixes of a training's tensors.
pub(super) const MODEL: &str = "model.";
pub(super) const OPTIMIZER: &str = "optimizer.";
pub(super) const GENERATORS: &str = "rng.";

/// Writes a file that replaces `path` once it is complete.
pub(super) fn write(path: &Path, tensors: &[(String, Tensor)], metadata: &Metadata) -> Result<()> {
    replace(path, |temporary| {
        let to_file = match is_pytorchs(path) {
            true => pytorch::to_file,
            false => named_tensors::to_file,
        };
        to_file(tensors, metadata, temporary).map_err(|error| match error {
            // The temporary name would mean nothing to the reader.
            Error::Io { operation, source, .. } => {
                Error::Io { operation, path: path.into(), source }
            }
            other => other,
        })
    })
}

/// Whether the name is one of those that PyTorch's users give.
fn is_pytorchs(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    [".pt", ".pth", ".pth.tar"].iter().any(|end| name.ends_with(end))
}

/// Reads a file that [`write`] or Python has written, in whichever of the formats.
pub(super) fn read(path: &Path) -> Result<(NamedTensors, Metadata)> {
    let bytes = fs::read(path).map_err(Error::io("read", path))?;
    match bytes[..] {
        [] => Err(Error::format(path, "an empty file", WRITTEN)),
        // The length of the header, which is an object of JSON.
        [_, _, _, _, _, _, _, _, b'{', ..] => safetensors(path, &bytes),
        [b'P'] | [b'P', b'K', ..] => pytorch::from_bytes(path, &bytes),
        // The protocol of a pickle.
        [0x80, 2..=5, _, ..] => {
            let python = format!("torch.load('{}', 'cpu')", path.display());
            let found = "a pickle, as PyTorch wrote before 1.6";
            Err(Error::format(path, found, pytorch::conversion(&python)))
        }
        [_, _, _, _, _, _, _, _, _, ..] => {
            Err(Error::format(path, "neither safetensors nor PyTorch's format", WRITTEN))
        }
        _ => safetensors(path, &bytes),
    }
}

fn safetensors(path: &Path, bytes: &[u8]) -> Result<(NamedTensors, Metadata)> {
    named_tensors::from_bytes(bytes).map_err(|error| {
        Error::format(path, format!("not a complete safetensors file ({error})"), WRITTEN)
    })
}

const WRITTEN: &str = "a file that `save`, torch.save or safetensors in Python has written \
                       completely";

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
