//! Named tensors in one file, in the format of safetensors or in PyTorch's.

use crate::named_tensors::{self, Metadata, NamedTensors, Source};
use crate::{Error, Result, destination::replace, pytorch};
use std::{io::Read, io::Seek, ops::Range, path::Path};

/// Writes a file that replaces `path` once it is complete.
pub fn write<S: Source>(path: &Path, tensors: &[(String, S)], metadata: &Metadata) -> Result<()> {
    replace(path, |temporary| {
        let to_file = if is_pytorchs(path) { pytorch::to_file } else { named_tensors::to_file };
        to_file(tensors, metadata, temporary).map_err(|error| match error {
            // The temporary name would mean nothing to the reader.
            Error::Io { operation, source, .. } => Error::io(operation, path)(source),
            other => other,
        })
    })
}

/// Whether the name is one of those that PyTorch's users give.
fn is_pytorchs(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    [".pt", ".pth", ".pth.tar"].iter().any(|end| name.ends_with(end))
}

/// Reads a file, whatever its name says of its format. `rows` is that of [`named_tensors::read`].
pub fn read(
    path: &Path,
    file: &mut (impl Read + Seek),
    rows: impl Fn(&str, &[usize]) -> Result<Option<Range<usize>>>,
) -> Result<(NamedTensors, Metadata)> {
    let failed = || Error::io("read", path);
    let mut begin = Vec::new();
    file.by_ref().take(9).read_to_end(&mut begin).map_err(failed())?;
    match begin[..] {
        [] => return Err(Error::format(path, "an empty file", WRITTEN)),
        // The length of the header, which is an object of JSON.
        [_, _, _, _, _, _, _, _, b'{', ..] => {}
        [b'P'] | [b'P', b'K', ..] => {
            let mut bytes = begin;
            file.read_to_end(&mut bytes).map_err(failed())?;
            let (mut tensors, metadata) = pytorch::from_bytes(path, &bytes)?;
            for (name, tensor) in &mut tensors {
                let size: Vec<_> = tensor.size().iter().map(|&length| length as usize).collect();
                if let Some(rows) = rows(name, &size)? {
                    *tensor = tensor.f_narrow_copy(0, rows.start as i64, rows.len() as i64)?;
                }
            }
            return Ok((tensors, metadata));
        }
        // The protocol of a pickle.
        [0x80, 2..=5, _, ..] => {
            let python = format!("torch.load('{}', 'cpu')", path.display());
            let found = "a pickle, as PyTorch wrote before 1.6";
            return Err(Error::format(path, found, pytorch::conversion(&python)));
        }
        [_, _, _, _, _, _, _, _, _, ..] => {
            return Err(Error::format(path, "neither safetensors nor PyTorch's format", WRITTEN));
        }
        // Cut off.
        _ => {}
    }
    named_tensors::read(file, rows).map_err(|error| match error {
        Error::Io { operation, source, .. } => Error::io(operation, path)(source),
        error @ Error::Format { .. } => error,
        error => Error::format(path, format!("not a complete safetensors file ({error})"), WRITTEN),
    })
}

const WRITTEN: &str = "a file that `save`, torch.save or safetensors in Python has written \
                       completely";
