//! A twin of the checkout that differs in what tch is locked to. It consists of links to the
//! checkout's files, and a Cargo.lock of its own.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::symlink;
use std::path::Path;

use anyhow::{Context, Result};

use super::{checkout, target_dir};
use crate::command;

const LOCK: &str = "Cargo.lock";

/// The checkout's Cargo.lock that the twin's was made from.
const ORIGIN: &str = "Cargo.lock.checkout";

/// Makes the twin, or brings it up to date.
pub(super) fn make(twin: &Path, tch: &str) -> Result<()> {
    fs::create_dir_all(twin).with_context(|| format!("cannot create {}", twin.display()))?;
    link(checkout(), twin)?;
    let lock = checkout().join(LOCK);
    let origin = fs::read(&lock).with_context(|| format!("cannot read {}", lock.display()))?;
    if fs::read(twin.join(ORIGIN)).is_ok_and(|found| found == origin) {
        return Ok(());
    }
    let write = |name| {
        let path = twin.join(name);
        fs::write(&path, &origin).with_context(|| format!("cannot write {}", path.display()))
    };
    write(LOCK)?;
    command::run(command::cargo(twin).args(["update", "--quiet", "tch", "--precise", tch]))?;
    // Written last, so that an interrupted update is done again.
    write(ORIGIN)
}

/// Links to everything in the checkout but what cargo and the set-up write.
fn link(checkout: &Path, twin: &Path) -> Result<()> {
    let target = target_dir()?;
    let cannot_list = || format!("cannot list {}", checkout.display());
    for entry in fs::read_dir(checkout).with_context(cannot_list)? {
        let path = entry.with_context(cannot_list)?.path();
        let name = path.file_name().unwrap_or_default();
        if path == target || [".git", ".libtorch", "target", LOCK].iter().any(|own| name == *own) {
            continue;
        }
        match symlink(&path, twin.join(name)) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => {
                let link = twin.join(name);
                return Err(error).with_context(|| format!("cannot create {}", link.display()));
            }
            _ => {}
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
        let (checkout, twin) = (folder.join("checkout"), folder.join("twin"));
        for name in [".cargo", ".git", ".libtorch", "core", "target"] {
            fs::create_dir_all(checkout.join(name)).expect("a folder");
        }
        for name in ["Cargo.lock", "Cargo.toml"] {
            fs::write(checkout.join(name), name).expect("a file");
        }
        fs::create_dir_all(&twin).expect("a folder");
        let linked = [link(&checkout, &twin), link(&checkout, &twin)];
        let names = fs::read_dir(&twin).expect("the twin is there");
        let mut names: Vec<_> = names.map(|entry| entry.expect("an entry").file_name()).collect();
        names.sort();
        let manifest = fs::read_to_string(twin.join("Cargo.toml"));
        fs::remove_dir_all(&folder).expect("the folder goes");

        for result in linked {
            result.expect("once and twice");
        }
        assert_eq!(names, [".cargo", "Cargo.toml", "core"]);
        assert_eq!(manifest.expect("the link leads to the file"), "Cargo.toml");
    }
}
