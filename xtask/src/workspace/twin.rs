//! A twin of the checkout whose Cargo.lock selects another tch. The rest of it is links to the
//! checkout's files.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use anyhow::{Context, Result};

use crate::checkout::{checkout, target_dir};
use crate::command;
use crate::files::{remove, write};
use crate::lock::Lock;

const LOCK: &str = "Cargo.lock";

/// The checkout's Cargo.lock that the twin's was made from.
const ORIGIN: &str = "Cargo.lock.checkout";

/// Makes the twin, or brings it up to date.
pub(super) fn make(twin: &Path, tch: &str) -> Result<()> {
    let _one_at_a_time = Lock::take(twin)?;
    link(checkout(), &target_dir()?, twin)?;
    let lock = checkout().join(LOCK);
    let origin = fs::read(&lock).with_context(|| format!("cannot read {}", lock.display()))?;
    if fs::read(twin.join(ORIGIN)).is_ok_and(|found| found == origin) {
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
    let cannot_list = || format!("cannot list {}", checkout.display());
    for entry in fs::read_dir(checkout).with_context(cannot_list)? {
        let path = entry.with_context(cannot_list)?.path();
        let name = path.file_name().unwrap_or_default();
        if path == target || [".git", ".libtorch", "target", LOCK].iter().any(|own| name == *own) {
            continue;
        }
        let link = twin.join(name);
        // It leads elsewhere if the checkout was moved, or shares its target folder with another.
        if !fs::read_link(&link).is_ok_and(|found| found == path) {
            remove(&link)?;
            symlink(&path, &link).with_context(|| format!("cannot create {}", link.display()))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_twin_has_everything_but_what_is_written_there() {
        let folder = std::env::temp_dir().join(format!("xtask-twin-{}", std::process::id()));
        let [old, new, twin] = ["old", "new", "twin"].map(|name| folder.join(name));
        for checkout in [&old, &new] {
            for name in [".cargo", ".git", ".libtorch", "build", "core", "target"] {
                fs::create_dir_all(checkout.join(name)).expect("a folder");
            }
            fs::write(checkout.join("Cargo.lock"), "").expect("a file");
            fs::write(checkout.join("Cargo.toml"), checkout.to_string_lossy().as_bytes())
                .expect("a file");
        }
        fs::create_dir_all(&twin).expect("a folder");
        let manifests = [&old, &old, &new].map(|checkout| {
            link(checkout, &checkout.join("build"), &twin).expect("links");
            fs::read_to_string(twin.join("Cargo.toml")).expect("the link leads to a file")
        });
        let names = fs::read_dir(&twin).expect("the twin is there");
        let mut names: Vec<_> = names.map(|entry| entry.expect("an entry").file_name()).collect();
        names.sort();
        fs::remove_dir_all(&folder).expect("the folder goes");

        assert_eq!(names, [".cargo", "Cargo.toml", "core"]);
        assert_eq!(manifests, [&old, &old, &new].map(|checkout| checkout.to_string_lossy()));
    }
}
