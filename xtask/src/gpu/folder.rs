//! The folder of the examination: making it and filling it.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use crate::files::{entries, make, remove};

/// The file by which such a folder is known: the release of PyTorch, and whether the programs are
/// built with CUDA.
pub(super) const MARK: &str = "packed.json";

/// Where `run` writes its page if it is started in the folder.
pub(super) const PAGE: &str = "examination.txt";

/// An empty folder in place of one that was packed before, of which only the page is kept. A folder
/// of anything else is refused.
pub(super) fn make_anew(folder: &Path) -> Result<()> {
    make(folder)?;
    let mut earlier = entries(folder)?;
    earlier.retain(|entry| !entry.ends_with(PAGE));
    ensure!(
        earlier.is_empty() || folder.join(MARK).exists(),
        "{} is not empty, and no earlier pack: choose another folder",
        folder.display()
    );
    earlier.iter().try_for_each(|entry| remove(entry))
}

/// Copies a file, or a folder with its contents but for what Python caches there.
pub(super) fn copy(from: &Path, to: &Path) -> Result<()> {
    if from.is_dir() {
        make(to)?;
        for entry in entries(from)?.into_iter().filter(|entry| !entry.ends_with("__pycache__")) {
            copy(&entry, &to.join(entry.file_name().unwrap_or_default()))?;
        }
        return Ok(());
    }
    make(to.parent().unwrap_or(to))?;
    fs::copy(from, to)
        .with_context(|| format!("cannot copy {} to {}", from.display(), to.display()))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::{size, write};

    #[test]
    fn only_an_earlier_pack_is_replaced_and_its_page_stays() {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("pack");
        let file = |name: &str| write(&folder.join(name), "12345").unwrap();
        make_anew(&folder).unwrap();
        file("below/one");
        file("two");
        assert_eq!(size(&folder).unwrap(), 10);
        let refused = make_anew(&folder).unwrap_err().to_string();
        assert!(refused.contains("is not empty"), "{refused}");
        file(MARK);
        file(PAGE);
        make_anew(&folder).unwrap();
        assert_eq!(entries(&folder).unwrap(), [folder.join(PAGE)]);
    }
}
