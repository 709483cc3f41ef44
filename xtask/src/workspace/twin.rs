//! A twin of the checkout whose Cargo.lock selects another tch. The rest of it is links to the checkout's files.

use crate::checkout::{checkout, target_dir};
use crate::files::{entries, read, remove, write};
use crate::{command, lock::Lock};
use anyhow::{Context, Result};
use std::{fs::read_link, os::unix::fs::symlink, path::Path};

const LOCK: &str = "Cargo.lock";

/// The checkout's Cargo.lock that the twin's was made from.
const ORIGIN: &str = "Cargo.lock.checkout";

pub(super) fn make(twin: &Path, tch: &str) -> Result<()> {
    let _one_at_a_time = Lock::take(twin)?;
    link(checkout(), &target_dir()?, twin)?;
    let origin = read(&checkout().join(LOCK))?;
    if read(&twin.join(ORIGIN)).is_ok_and(|found| found == origin) {
        return Ok(());
    }
    // Removed first and written last, so that an interrupted update is repeated.
    remove(&twin.join(ORIGIN))?;
    write(&twin.join(LOCK), &origin)?;
    command::run(command::cargo(twin).args(["update", "--quiet", "tch", "--precise", tch]))?;
    write(&twin.join(ORIGIN), origin)
}

/// Links to everything in the checkout but what cargo and the set-up write.
fn link(checkout: &Path, target: &Path, twin: &Path) -> Result<()> {
    for path in entries(checkout)? {
        let name = path.file_name().unwrap_or_default();
        if path == target || [".git", ".libtorch", "target", LOCK].iter().any(|own| name == *own) {
            continue;
        }
        let link = twin.join(name);
        // It leads elsewhere if the checkout was moved, or shares its target folder with another.
        if !read_link(&link).is_ok_and(|found| found == path) {
            remove(&link)?;
            symlink(&path, &link).with_context(|| format!("cannot create {}", link.display()))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::make;

    #[test]
    fn a_twin_has_everything_but_what_is_written_there() {
        let folder = tempfile::tempdir().unwrap();
        let [old, new, twin] = ["old", "new", "twin"].map(|name| folder.path().join(name));
        for checkout in [&old, &new] {
            for name in [".cargo", ".git", ".libtorch", "build", "core", "target"] {
                make(&checkout.join(name)).unwrap();
            }
            write(&checkout.join("Cargo.lock"), "").unwrap();
            write(&checkout.join("Cargo.toml"), checkout.to_string_lossy().as_bytes()).unwrap();
        }
        make(&twin).unwrap();
        for checkout in [&old, &old, &new] {
            link(checkout, &checkout.join("build"), &twin).unwrap();
            assert_eq!(read(&twin.join("Cargo.toml")).unwrap(), checkout.to_string_lossy());
        }
        let mut paths = entries(&twin).unwrap();
        paths.sort();
        assert_eq!(paths, [".cargo", "Cargo.toml", "core"].map(|name| twin.join(name)));
    }
}
