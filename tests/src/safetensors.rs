//! Files in the safetensors format.

use crate::prelude::*;
use ::safetensors::tensor::{Dtype, SafeTensors, TensorView, serialize_to_file};

#[derive(Debug, Clone, PartialEq)]
pub struct Tensor {
    /// `F32` and so on.
    pub dtype: String,
    pub shape: Vec<usize>,
    /// Its values, little-endian.
    pub bytes: Vec<u8>,
}

impl Tensor {
    /// Its values; fails unless they are `F32`.
    pub fn floats(&self) -> Result<Vec<f32>> {
        ensure!(self.dtype == "F32", "{} is not F32", self.dtype);
        let (values, _) = self.bytes.as_chunks();
        Ok(values.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect())
    }
}

/// By name, since their order in a file is up to the writer.
pub type Tensors = BTreeMap<String, Tensor>;

pub fn read(path: &Path) -> Result<Tensors> {
    let file = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    let tensors = SafeTensors::deserialize(&file)
        .with_context(|| format!("{} is no safetensors file", path.display()))?;
    let owned = |(name, view): (String, TensorView<'_>)| {
        let (dtype, shape) = (format!("{:?}", view.dtype()), view.shape().to_vec());
        (name, Tensor { dtype, shape, bytes: view.data().to_vec() })
    };
    Ok(tensors.tensors().into_iter().map(owned).collect())
}

/// Writes a file of tensors that hold zeros, of these names and shapes.
pub fn write_zeros(path: &Path, tensors: &[(&str, &[usize])]) -> Result<()> {
    let bytes = |shape: &[usize]| shape.iter().product::<usize>() * size_of::<f32>();
    let zeros = vec![0; tensors.iter().map(|(_, shape)| bytes(shape)).max().unwrap_or_default()];
    let mut views = Vec::new();
    for (name, shape) in tensors {
        views.push((*name, TensorView::new(Dtype::F32, shape.to_vec(), &zeros[..bytes(shape)])?));
    }
    serialize_to_file(views, &None, path)
        .with_context(|| format!("cannot write {}", path.display()))
}
