//! Writing and removing files. An error names the file.

use std::fs;
use std::io;
use std::path::Path;

use anyhow::{Context, Result};

/// Writes a file, in a folder that is made if it is missing.
pub(crate) fn write(path: &Path, contents: impl AsRef<[u8]>) -> Result<()> {
    let folder = path.parent().unwrap_or(path);
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    fs::write(path, contents).with_context(|| format!("cannot write {}", path.display()))
}

/// Removes a file, a link or a folder with its contents. It is no error if it does not exist.
pub(crate) fn remove(path: &Path) -> Result<()> {
    let removed = if path.is_dir() && !path.is_symlink() {
        fs::remove_dir_all(path)
    } else {
        fs::remove_file(path)
    };
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", path.display()))
        }
        _ => Ok(()),
    }
}
