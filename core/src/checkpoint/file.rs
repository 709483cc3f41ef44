//! Tensors and text in a safetensors file.

use super::destination::replace;
use crate::error::without_backtrace;
use crate::{Error, Result};
use safetensors::tensor::serialize_to_file;
use safetensors::{Dtype, SafeTensorError, SafeTensors, View};
use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::Path;
use tch::{TchError, Tensor};

/// Named tensors.
pub(super) type Tensors = HashMap<String, Tensor>;

/// The text in a file's header, by the names of the format's `__metadata__`.
pub(super) type Metadata = HashMap<String, String>;

/// Writes a file that takes the place of `path` when it is whole.
pub(super) fn write(path: &Path, tensors: &Tensors, metadata: Option<Metadata>) -> Result<()> {
    let failure = RefCell::new(None);
    let views = tensors
        .iter()
        .map(|(name, tensor)| Ok((name.as_str(), Source::new(tensor, &failure)?)))
        .collect::<Result<Vec<_>, TchError>>()
        .map_err(Error::tensor("checkpoint::save"))?;
    replace(path, |temporary| {
        serialize_to_file(views, &metadata, temporary).map_err(|error| {
            let source = match error {
                SafeTensorError::IoError(error) => error,
                other => io::Error::other(other.to_string()),
            };
            Error::Io { operation: "write", path: path.into(), source }
        })?;
        match failure.take() {
            Some(error) => Err(Error::tensor("checkpoint::save")(error)),
            None => Ok(()),
        }
    })
}

/// A tensor whose bytes are fetched when it is its turn: no second model lies in memory.
struct Source<'a> {
    tensor: &'a Tensor,
    shape: Vec<usize>,
    dtype: Dtype,
    /// The trait has no place for an error.
    failure: &'a RefCell<Option<TchError>>,
}

impl<'a> Source<'a> {
    fn new(tensor: &'a Tensor, failure: &'a RefCell<Option<TchError>>) -> Result<Self, TchError> {
        // No dimension is negative.
        let shape = tensor.size().iter().map(|&size| size as usize).collect();
        Ok(Source { tensor, shape, dtype: tensor.kind().try_into()?, failure })
    }
}

impl View for Source<'_> {
    fn dtype(&self) -> Dtype {
        self.dtype
    }

    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn data(&self) -> Cow<'_, [u8]> {
        let mut bytes = vec![0; self.data_len()];
        if let Err(error) = self.tensor.f_copy_data_u8(&mut bytes, self.tensor.numel()) {
            self.failure.replace(Some(error));
        }
        bytes.into()
    }

    fn data_len(&self) -> usize {
        self.tensor.numel() * self.dtype.size()
    }
}

/// Reads what [`write`], or Python, has written.
pub(super) fn read(path: &Path) -> Result<(Tensors, Metadata)> {
    let bytes = fs::read(path).map_err(Error::io("read", path))?;
    parse(&bytes).map_err(|reason| Error::Format {
        path: path.into(),
        found: format!("no whole safetensors file ({reason})"),
        expected: "one that `save`, or safetensors in Python, has written to its end".into(),
    })
}

fn parse(bytes: &[u8]) -> Result<(Tensors, Metadata), String> {
    let (_, header) = SafeTensors::read_metadata(bytes).map_err(|error| error.to_string())?;
    let file = SafeTensors::deserialize(bytes).map_err(|error| error.to_string())?;
    let tensors = file
        .tensors()
        .into_iter()
        .map(|(name, view)| Ok((name, Tensor::try_from(view)?)))
        .collect::<Result<_, TchError>>()
        .map_err(|error| without_backtrace(&error))?;
    Ok((tensors, header.metadata().clone().unwrap_or_default()))
}
