//! The file of a checkpoint: weights alone, under the names of the model's variables, or a whole
//! training, whose tensors have a prefix each and whose metadata holds the rest.

use super::destination::replace;
use super::index::{self, is_index};
use super::pytorch;
use super::sharded::{Saved, Sharding, while_gathering};
use crate::distributed::ProcessGroup;
use crate::{Error, Result};
use std::fs::File;
use std::io::{Cursor, Read, Seek};
use std::ops::Range;
use std::path::Path;
use tch_parallel_base::error::with_causes;
use tch_parallel_base::named_tensors::{self, Metadata, NamedTensors, Source};

/// The key in the file's `__metadata__` that holds everything in a training that is not a tensor.
pub(super) const HEADER: &str = "training";

/// The prefixes of a training's tensors.
pub(super) const MODEL: &str = "model.";
pub(super) const OPTIMIZER: &str = "optimizer.";
pub(super) const GENERATORS: &str = "rng.";

/// What a file is to contain.
#[derive(Default)]
pub(super) struct Contents {
    pub(super) tensors: Vec<(String, Saved)>,
    pub(super) metadata: Metadata,
}

/// Has rank 0 write a file that replaces `path` once it is complete. A collective, which succeeds on all
/// ranks or fails on all. Where the model is sharded, all have the contents, otherwise only rank 0.
pub(super) fn write_together(
    operation: &'static str,
    path: &Path,
    contents: Result<Contents>,
    is_sharded: bool,
    group: &ProcessGroup,
) -> Result<()> {
    let text = |error: Option<&Error>| error.map(|error| with_causes(error));
    if is_sharded || is_index(path) {
        // Nobody waits for the tensors of a rank that has none.
        group.agree(operation, text(contents.as_ref().err()).as_deref())?;
    }
    let written = contents.and_then(|Contents { tensors, metadata }| match is_index(path) {
        true => index::write(operation, path, tensors, metadata, group),
        false => while_gathering(&tensors, group, |tensors| write_file(path, &tensors, &metadata)),
    });
    let agreed = group.agree(operation, text(written.as_ref().err()).as_deref());
    written.and(agreed)
}

pub(super) fn write_file<S: Source>(
    path: &Path,
    tensors: &[(String, S)],
    metadata: &Metadata,
) -> Result<()> {
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

/// Reads a file that [`write_together`] or Python has written, in whichever of the formats. Of tensors
/// that are sharded, only this rank's rows.
pub(super) fn read(path: &Path, sharding: &Sharding) -> Result<(NamedTensors, Metadata)> {
    let failed = || Error::io("read", path);
    let mut file = File::open(path).map_err(failed())?;
    if file.metadata().map_err(failed())?.is_file() {
        return parse(path, &mut file, sharding);
    }
    // A pipe can only be read from its beginning to its end.
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).map_err(failed())?;
    parse(path, &mut Cursor::new(bytes), sharding)
}

fn parse(
    path: &Path,
    file: &mut (impl Read + Seek),
    sharding: &Sharding,
) -> Result<(NamedTensors, Metadata)> {
    let failed = || Error::io("read", path);
    let mut begin = Vec::new();
    file.by_ref().take(9).read_to_end(&mut begin).map_err(failed())?;
    match begin[..] {
        [] => Err(Error::format(path, "an empty file", WRITTEN)),
        // The length of the header, which is an object of JSON.
        [_, _, _, _, _, _, _, _, b'{', ..] => safetensors(path, file, sharding),
        [b'{', b'"', ..] => {
            file.read_to_end(&mut begin).map_err(failed())?;
            index::read(path, &begin, sharding)
        }
        [b'P'] | [b'P', b'K', ..] => {
            let mut bytes = begin;
            file.read_to_end(&mut bytes).map_err(failed())?;
            let (mut tensors, metadata) = pytorch::from_bytes(path, &bytes)?;
            for (name, tensor) in &mut tensors {
                let size: Vec<_> = tensor.size().iter().map(|&length| length as usize).collect();
                if let Some(rows) = sharding.rows(path, name, &size)? {
                    *tensor = tensor.f_narrow_copy(0, rows.start as i64, rows.len() as i64)?;
                }
            }
            Ok((tensors, metadata))
        }
        // The protocol of a pickle.
        [0x80, 2..=5, _, ..] => {
            let python = format!("torch.load('{}', 'cpu')", path.display());
            let found = "a pickle, as PyTorch wrote before 1.6";
            Err(Error::format(path, found, pytorch::conversion(&python)))
        }
        [_, _, _, _, _, _, _, _, _, ..] => {
            Err(Error::format(path, "neither safetensors nor PyTorch's format", WRITTEN))
        }
        _ => safetensors(path, file, sharding),
    }
}

fn safetensors(
    path: &Path,
    file: &mut (impl Read + Seek),
    sharding: &Sharding,
) -> Result<(NamedTensors, Metadata)> {
    parse_safetensors(path, file, |name, size| sharding.rows(path, name, size))
}

/// Reads a file of tensors. `rows` tells which rows of each.
pub(super) fn parse_safetensors(
    path: &Path,
    file: &mut (impl Read + Seek),
    rows: impl Fn(&str, &[usize]) -> Result<Option<Range<usize>>>,
) -> Result<(NamedTensors, Metadata)> {
    named_tensors::read(file, rows).map_err(|error| match error {
        Error::Io { operation, source, .. } => Error::Io { operation, path: path.into(), source },
        error @ Error::Format { .. } => error,
        error => Error::format(path, format!("not a complete safetensors file ({error})"), WRITTEN),
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
