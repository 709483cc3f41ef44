//! Data sets in MNIST's format, IDX.

use crate::prelude::*;

/// Writes a data set of `count` black digits in each part, all labelled nine.
pub fn write(directory: &Path, count: u32) -> Result<()> {
    for part in ["train", "t10k"] {
        let black = vec![0; count as usize * 28 * 28];
        let images = idx(&[count, 28, 28], black);
        fs::write(directory.join(format!("{part}-images-idx3-ubyte")), images)?;
        fs::write(directory.join(format!("{part}-labels-idx1-ubyte")), labels(count))?;
    }
    Ok(())
}

/// A file of `count` labels, all nine.
pub fn labels(count: u32) -> Vec<u8> {
    idx(&[count], vec![9; count as usize])
}

/// A magic number, the dimensions, the values.
fn idx(dimensions: &[u32], values: Vec<u8>) -> Vec<u8> {
    let magic = 0x0800 + dimensions.len() as u32;
    let header = [magic].into_iter().chain(dimensions.iter().copied());
    header.flat_map(u32::to_be_bytes).chain(values).collect()
}
