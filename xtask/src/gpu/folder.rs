//! The folder of the examination: making it, filling it and measuring it.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use crate::files::remove;

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

pub(super) fn make(folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))
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

/// The number of bytes of all files in a folder.
pub(super) fn size(folder: &Path) -> Result<u64> {
    entries(folder)?
        .into_iter()
        .map(|entry| match entry.is_dir() {
            true => size(&entry),
            false => Ok(fs::metadata(&entry)?.len()),
        })
        .sum()
}

fn entries(folder: &Path) -> Result<Vec<PathBuf>> {
    let cannot_list = || format!("cannot list {}", folder.display());
    fs::read_dir(folder)
        .with_context(cannot_list)?
        .map(|entry| Ok(entry.with_context(cannot_list)?.path()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_earlier_pack_is_replaced_and_its_page_stays() {
        let folder = std::env::temp_dir().join(format!("xtask-gpu-{}", std::process::id()));
        let file = |name: &str| fs::write(folder.join(name), "12345").expect("a file");
        make_anew(&folder).expect("there is none yet");
        make(&folder.join("below")).expect("a folder");
        file("below/one");
        file("two");
        let bytes = size(&folder).expect("its size");
        let refused = make_anew(&folder).map_err(|error| error.to_string());
        file(MARK);
        file(PAGE);
        let replaced = make_anew(&folder);
        let left = entries(&folder).expect("it is there");
        fs::remove_dir_all(&folder).expect("the folder goes");

        assert_eq!(bytes, 10);
        assert!(refused.expect_err("it is something else").contains("is not empty"));
        replaced.expect("an earlier pack goes");
        assert_eq!(left, [folder.join(PAGE)]);
    }
}
