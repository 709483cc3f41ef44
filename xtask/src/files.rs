//! Files and folders. An error names the file.

use anyhow::{Context, Result};
use std::{fs, io, path::Path, path::PathBuf};

pub(crate) fn make(folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))
}

pub(crate) fn entries(folder: &Path) -> Result<Vec<PathBuf>> {
    fs::read_dir(folder)
        .and_then(|entries| entries.map(|entry| entry.map(|entry| entry.path())).collect())
        .with_context(|| format!("cannot list {}", folder.display()))
}

/// The number of bytes of all files in a folder.
pub(crate) fn size(folder: &Path) -> Result<u64> {
    let bytes = |entry: PathBuf| match entry.is_dir() {
        true => size(&entry),
        false => Ok(fs::metadata(&entry)?.len()),
    };
    entries(folder)?.into_iter().map(bytes).sum()
}

pub(crate) fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

/// Writes a file, in a folder that is made if it is missing.
pub(crate) fn write(path: &Path, contents: impl AsRef<[u8]>) -> Result<()> {
    make(path.parent().unwrap_or(path))?;
    fs::write(path, contents).with_context(|| format!("cannot write {}", path.display()))
}

/// Removes a file, a link or a folder with its contents. It is no error if it does not exist.
pub(crate) fn remove(path: &Path) -> Result<()> {
    let is_folder = path.is_dir() && !path.is_symlink();
    let removed = if is_folder { fs::remove_dir_all(path) } else { fs::remove_file(path) };
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", path.display()))
        }
        _ => Ok(()),
    }
}
