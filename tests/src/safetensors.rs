//! The safetensors format, as far as tests need it: eight bytes with the length of the header, the
//! header as JSON, the tensors' bytes.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::{Map, Value, json};

/// A tensor as stored in the file.
#[derive(Debug, Clone, PartialEq)]
pub struct Tensor {
    /// `F32` and so on.
    pub dtype: String,
    /// The sizes of its dimensions.
    pub shape: Vec<usize>,
    /// Its values, little-endian.
    pub bytes: Vec<u8>,
}

/// All tensors of a file, by name, since their order in the file is up to the writer.
pub fn read(path: &Path) -> Result<BTreeMap<String, Tensor>> {
    let file = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    parse(&file).with_context(|| format!("{} is no safetensors file", path.display()))
}

fn parse(file: &[u8]) -> Result<BTreeMap<String, Tensor>> {
    let (length, rest) = file.split_first_chunk().context("it is too short")?;
    let length = usize::try_from(u64::from_le_bytes(*length))?;
    let (header, data) = rest.split_at_checked(length).context("its header is cut off")?;
    let header: BTreeMap<String, Value> = serde_json::from_slice(header)?;
    let mut tensors = BTreeMap::new();
    for (name, entry) in header {
        if name == "__metadata__" {
            continue;
        }
        let dtype = entry["dtype"].as_str().context("a tensor has no dtype")?.to_owned();
        let shape = serde_json::from_value(entry["shape"].clone())?;
        let [begin, end]: [usize; 2] = serde_json::from_value(entry["data_offsets"].clone())?;
        let bytes = data.get(begin..end).with_context(|| format!("{name} is cut off"))?.to_vec();
        tensors.insert(name, Tensor { dtype, shape, bytes });
    }
    Ok(tensors)
}

/// Writes a file of tensors that hold zeros, of these names and shapes.
pub fn write_zeros(path: &Path, tensors: &[(&str, &[usize])]) -> Result<()> {
    let mut header = Map::new();
    let mut end = 0;
    for &(name, shape) in tensors {
        let begin = end;
        end += shape.iter().product::<usize>() * size_of::<f32>();
        let entry = json!({ "dtype": "F32", "shape": shape, "data_offsets": [begin, end] });
        header.insert(name.to_owned(), entry);
    }
    let header = serde_json::to_vec(&header)?;
    let mut file = u64::try_from(header.len())?.to_le_bytes().to_vec();
    file.extend(header);
    file.resize(file.len() + end, 0);
    fs::write(path, file).with_context(|| format!("cannot write {}", path.display()))
}
