//! Writing a text to a file: a chart, a vocabulary.

use std::{fs, path::Path};
use tch_parallel::{Error, Result, checkpoint::replace};

/// Writes `text` to `path`, whose directory must exist, and replaces an existing file. As with a checkpoint, whoever
/// reads it meanwhile finds a complete file, the old one or the new one.
pub fn save(path: impl AsRef<Path>, text: &str) -> Result<()> {
    let path = path.as_ref();
    replace(path, |temporary| fs::write(temporary, text).map_err(Error::io("write", path)))
}
