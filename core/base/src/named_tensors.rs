//! Named tensors as bytes: the safetensors format.

use crate::{Error, Result, check};
pub use safetensors::Dtype;
use safetensors::tensor::{self, TensorView, serialize, serialize_to_file};
use safetensors::{SafeTensorError, View};
use std::io::{self, Cursor, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::{borrow::Cow, cell::RefCell, collections::HashMap, ops::Range};
use tch::{Kind, Tensor};

/// Tensors by name.
pub type NamedTensors = HashMap<String, Tensor>;

/// The text of the header's `__metadata__`, by name.
pub type Metadata = HashMap<String, String>;

/// A tensor that is fetched only when it is written, so that memory holds no second copy of all.
pub trait Source {
    /// Its kind.
    fn kind(&self) -> Kind;

    /// Its shape.
    fn size(&self) -> Vec<i64>;

    /// The tensor itself.
    fn fetch(&self) -> Result<Tensor>;
}

impl Source for Tensor {
    fn kind(&self) -> Kind {
        self.kind()
    }

    fn size(&self) -> Vec<i64> {
        self.size()
    }

    fn fetch(&self) -> Result<Tensor> {
        Ok(self.shallow_clone())
    }
}

/// Writes the tensors to a file. None may be sparse.
pub fn to_file<S: Source>(tensors: &[(String, S)], metadata: &Metadata, path: &Path) -> Result<()> {
    let metadata = (!metadata.is_empty()).then(|| metadata.clone());
    with_views(tensors.iter().map(|(name, tensor)| (name, tensor)), |views| {
        let written = serialize_to_file(views, &metadata, path).map_err(|error| match error {
            SafeTensorError::IoError(error) => error,
            other => io::Error::other(other.to_string()),
        });
        written.map_err(Error::io("write", path))
    })
}

/// The contents of such a file.
pub fn to_bytes(tensors: &NamedTensors) -> Result<Vec<u8>> {
    tensors.iter().try_for_each(|(name, tensor)| refuse_sparse(name, tensor))?;
    with_views(tensors, |views| serialize(views, &None).map_err(unreadable))
}

/// The tensors in such a file; otherwise the reason why it is invalid or incomplete.
pub fn from_bytes(bytes: &[u8]) -> Result<(NamedTensors, Metadata)> {
    read(&mut Cursor::new(bytes), |_, _| Ok(None))
}

/// Reads the header and the tensors. `rows` tells by a tensor's name and shape which rows to read; `None` means all.
pub fn read(
    file: &mut (impl Read + Seek),
    rows: impl Fn(&str, &[usize]) -> Result<Option<Range<usize>>>,
) -> Result<(NamedTensors, Metadata)> {
    let length = file.seek(SeekFrom::End(0)).map_err(failed)?;
    let mut header_length = [0; 8];
    file.seek(SeekFrom::Start(0)).map_err(failed)?;
    file.read_exact(&mut header_length).map_err(failed)?;
    let header_length = u64::from_le_bytes(header_length);
    let rest = length.checked_sub(8).and_then(|rest| rest.checked_sub(header_length));
    let data_length = rest.ok_or_else(|| unreadable(SafeTensorError::InvalidHeaderLength))?;
    let ensure = |ok: bool, error| if ok { Ok(()) } else { Err(unreadable(error)) };
    ensure(header_length <= LONGEST_HEADER, SafeTensorError::HeaderTooLarge)?;
    let mut header = vec![0; header_length as usize];
    file.read_exact(&mut header).map_err(failed)?;
    let header: tensor::Metadata = serde_json::from_slice(&header)
        .map_err(|_| unreadable(SafeTensorError::InvalidHeaderDeserialization))?;

    let mut described: Vec<_> = header.tensors().into_iter().collect();
    described.sort_by_key(|(_, info)| info.data_offsets);
    let mut tensors = NamedTensors::new();
    let mut next = 0;
    for (name, info) in described {
        let (begin, end) = info.data_offsets;
        ensure(begin == next, SafeTensorError::InvalidOffset(name.clone()))?;
        let elements = info.shape.iter().try_fold(1usize, |product, it| product.checked_mul(*it));
        let bytes = elements.and_then(|count| count.checked_mul(info.dtype.size()));
        let has_its_size = bytes.is_some() && end.checked_sub(begin) == bytes;
        ensure(has_its_size, SafeTensorError::TensorInvalidInfo)?;
        ensure(end as u64 <= data_length, SafeTensorError::MetadataIncompleteBuffer)?;
        next = end;
        let mut shape = info.shape.clone();
        let mut range = begin..end;
        if let (Some(rows), Some(all)) = (rows(&name, &info.shape)?, info.shape.first()) {
            let row = (end - begin) / all.max(&1);
            range = begin + rows.start * row..begin + rows.end * row;
            shape[0] = rows.len();
        }
        let mut bytes = vec![0; range.len()];
        file.seek(SeekFrom::Start(8 + header_length + range.start as u64)).map_err(failed)?;
        file.read_exact(&mut bytes).map_err(failed)?;
        let view = TensorView::new(info.dtype, shape, &bytes).map_err(unreadable)?;
        tensors.insert(name, Tensor::try_from(view)?);
    }
    ensure(next as u64 == data_length, SafeTensorError::MetadataIncompleteBuffer)?;
    Ok((tensors, header.metadata().clone().unwrap_or_default()))
}

/// As in the library itself.
const LONGEST_HEADER: u64 = 100_000_000;

/// Without the path, which only the caller knows.
fn failed(source: io::Error) -> Error {
    match source.kind() {
        io::ErrorKind::UnexpectedEof => unreadable(SafeTensorError::InvalidHeaderLength),
        _ => Error::Io { operation: "read", path: PathBuf::new(), source },
    }
}

fn unreadable(error: SafeTensorError) -> Error {
    Error::Tensor { operation: "safetensors", message: error.to_string() }
}

fn with_views<'a, S: Source + 'a, R>(
    tensors: impl IntoIterator<Item = (&'a String, &'a S)>,
    write: impl FnOnce(Vec<(&str, Fetched<'_, S>)>) -> Result<R>,
) -> Result<R> {
    let failure = RefCell::new(None);
    let views = tensors.into_iter().map(|(name, source)| {
        // No dimension is negative.
        let shape = source.size().iter().map(|&size| size as usize).collect();
        let dtype = Dtype::try_from(source.kind())?;
        Ok((name.as_str(), Fetched { source, shape, dtype, failure: &failure }))
    });
    let written = write(views.collect::<Result<_>>()?)?;
    failure.take().map_or(Ok(written), Err)
}

struct Fetched<'a, S> {
    source: &'a S,
    shape: Vec<usize>,
    dtype: Dtype,
    /// The trait has no place for an error.
    failure: &'a RefCell<Option<Error>>,
}

/// The bytes of a source's numbers, as they lie in a file.
pub(crate) fn numbers(source: &impl Source) -> Result<Vec<u8>> {
    let tensor = source.fetch()?.f_resolve_conj()?.f_resolve_neg()?;
    let mut bytes = vec![0; tensor.numel() * tensor.kind().elt_size_in_bytes()];
    tensor.f_copy_data_u8(&mut bytes, tensor.numel())?;
    Ok(bytes)
}

/// Neither format of checkpoints has sparse tensors here.
pub fn refuse_sparse(name: &str, tensor: &Tensor) -> Result<()> {
    check(!tensor.is_sparse(), name, "sparse", "dense: sparse tensors are not saved")
}

impl<S: Source> View for Fetched<'_, S> {
    fn dtype(&self) -> Dtype {
        self.dtype
    }

    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn data(&self) -> Cow<'_, [u8]> {
        // After a failure the file is given up, so nothing more is fetched or written.
        if self.failure.borrow().is_none() {
            match numbers(self.source) {
                Ok(bytes) => return bytes.into(),
                Err(error) => self.failure.replace(Some(error)),
            };
        }
        Cow::Borrowed(&[])
    }

    fn data_len(&self) -> usize {
        self.shape.iter().product::<usize>() * self.dtype.size()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sparse_tensor_is_refused_by_name() {
        let dense = Tensor::ones([3, 2], tch::kind::FLOAT_CPU);
        let named = |tensor| NamedTensors::from([("fc.weight.momentum_buffer".to_owned(), tensor)]);
        assert!(to_bytes(&named(dense.shallow_clone())).is_ok());
        let error = to_bytes(&named(dense.to_kind(Kind::Double).to_sparse_sparse_dim(1)));
        let expected =
            "fc.weight.momentum_buffer is sparse, but must be dense: sparse tensors are not saved";
        assert_eq!(error.unwrap_err().to_string(), expected);
    }

    /// A file with this header and as many zeros as data.
    fn file(header: &str, data: usize) -> Vec<u8> {
        let length = (header.len() as u64).to_le_bytes();
        [&length, header.as_bytes(), &vec![0; data]].concat()
    }

    #[test]
    fn a_header_that_does_not_describe_the_data_is_refused() {
        let one = |shape: &str, offsets: &str| {
            format!(r#""a":{{"dtype":"F32","shape":{shape},"data_offsets":{offsets}}}"#)
        };
        let sound = format!("{{{}}}", one("[2]", "[0,8]"));
        assert_eq!(from_bytes(&file(&sound, 8)).unwrap().0["a"].size(), [2]);
        let again = one("[2]", "[0,8]").replace("\"a\"", "\"b\"");
        let refused = [
            (sound.clone(), 7),
            (sound.clone(), 9),
            (format!("{{{}}}", one("[3]", "[0,8]")), 8),
            (format!("{{{}}}", one("[2]", "[4,12]")), 12),
            (format!("{{{},{again}}}", one("[2]", "[0,8]")), 8),
            (format!("{{{}}}", one("[4294967296,4294967296]", "[18446744073709551615,0]")), 0),
            ("{]".to_owned(), 0),
        ];
        for (header, data) in refused {
            assert!(from_bytes(&file(&header, data)).is_err(), "{header} and {data} bytes");
        }
        assert!(from_bytes(&[]).is_err());
    }
}
