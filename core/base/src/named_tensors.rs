//! Named tensors as bytes: the safetensors format.

use crate::{Error, Result};
use safetensors::tensor::{serialize, serialize_to_file};
use safetensors::{Dtype, SafeTensorError, SafeTensors, View};
use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::path::Path;
use tch::{TchError, Tensor};

/// Tensors by name.
pub type NamedTensors = HashMap<String, Tensor>;

/// The text of the header's `__metadata__`, by name.
pub type Metadata = HashMap<String, String>;

/// Writes the tensors to a file.
pub fn to_file(tensors: &[(String, Tensor)], metadata: &Metadata, path: &Path) -> Result<()> {
    let metadata = (!metadata.is_empty()).then(|| metadata.clone());
    with_views(tensors.iter().map(|(name, tensor)| (name, tensor)), |views| {
        serialize_to_file(views, &metadata, path).map_err(|error| {
            let source = match error {
                SafeTensorError::IoError(error) => error,
                other => io::Error::other(other.to_string()),
            };
            Error::Io { operation: "write", path: path.into(), source }
        })
    })
}

/// The contents of such a file.
pub fn to_bytes(tensors: &NamedTensors) -> Result<Vec<u8>> {
    with_views(tensors, |views| serialize(views, &None).map_err(unreadable))
}

/// The tensors in such a file; otherwise the reason why it is invalid or incomplete.
pub fn from_bytes(bytes: &[u8]) -> Result<(NamedTensors, Metadata)> {
    let (_, header) = SafeTensors::read_metadata(bytes).map_err(unreadable)?;
    let file = SafeTensors::deserialize(bytes).map_err(unreadable)?;
    let tensors = file
        .tensors()
        .into_iter()
        .map(|(name, view)| Ok((name, Tensor::try_from(view)?)))
        .collect::<Result<_, TchError>>()?;
    Ok((tensors, header.metadata().clone().unwrap_or_default()))
}

const SAFETENSORS: &str = "safetensors";

fn unreadable(error: SafeTensorError) -> Error {
    Error::Tensor { operation: SAFETENSORS, message: error.to_string() }
}

fn with_views<'a, R>(
    tensors: impl IntoIterator<Item = (&'a String, &'a Tensor)>,
    write: impl FnOnce(Vec<(&str, Source<'_>)>) -> Result<R>,
) -> Result<R> {
    let failure = RefCell::new(None);
    let views = tensors
        .into_iter()
        .map(|(name, tensor)| Ok((name.as_str(), Source::new(name, tensor, &failure)?)))
        .collect::<Result<_>>()?;
    let written = write(views)?;
    match failure.take() {
        Some(error) => Err(Error::from(error)),
        None => Ok(written),
    }
}

/// A tensor whose bytes are fetched only when needed, so that memory holds no second copy of all.
struct Source<'a> {
    tensor: &'a Tensor,
    shape: Vec<usize>,
    dtype: Dtype,
    /// The trait has no place for an error.
    failure: &'a RefCell<Option<TchError>>,
}

impl<'a> Source<'a> {
    fn new(name: &str, tensor: &'a Tensor, failure: &'a RefCell<Option<TchError>>) -> Result<Self> {
        refuse_sparse(name, tensor)?;
        // No dimension is negative.
        let shape = tensor.size().iter().map(|&size| size as usize).collect();
        Ok(Source { tensor, shape, dtype: tensor.kind().try_into()?, failure })
    }
}

/// Neither format of checkpoints has sparse tensors here.
pub fn refuse_sparse(name: &str, tensor: &Tensor) -> Result<()> {
    match tensor.is_sparse() {
        true => Err(Error::argument(name, "sparse", "dense: sparse tensors are not saved")),
        false => Ok(()),
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

#[cfg(test)]
mod tests {
    use super::*;
    use tch::Kind;

    #[test]
    fn a_sparse_tensor_is_refused_by_name() {
        let dense = Tensor::ones([3, 2], tch::kind::FLOAT_CPU);
        let named = |tensor| NamedTensors::from([("fc.weight.momentum_buffer".to_owned(), tensor)]);
        assert!(to_bytes(&named(dense.shallow_clone())).is_ok());
        let error = to_bytes(&named(dense.to_kind(Kind::Double).to_sparse_sparse_dim(1)));
        assert_eq!(
            error.unwrap_err().to_string(),
            "fc.weight.momentum_buffer is sparse, but must be dense: sparse tensors are not saved"
        );
    }
}
