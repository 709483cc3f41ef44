//! The file that says what a complete set-up contains. It is written last, so it exists only if
//! everything else does.

use std::fs;

use anyhow::{Context, Result};

use super::{Level, Venv};
use crate::files;
use crate::release::Release;

const FILE: &str = ".setup-complete";

/// The level whose packages are all installed. None without a stamp, or if the stamp is of other
/// versions than those of the environment's release.
pub(super) fn read(venv: &Venv) -> Option<Level> {
    let found = fs::read_to_string(venv.folder().join(FILE)).ok()?;
    [Level::Minimal, Level::Full].into_iter().find(|level| text(*level, venv.release()) == found)
}

/// Records that the set-up contains all packages of the level.
pub(super) fn write(venv: &Venv, level: Level) -> Result<()> {
    // Renamed into place, so that the stamp is complete whenever it exists.
    let (part, whole) = (venv.folder().join(".setup-complete.part"), venv.folder().join(FILE));
    files::write(&part, text(level, venv.release()))?;
    fs::rename(&part, &whole).with_context(|| format!("cannot write {}", whole.display()))
}

/// Removes the stamp, before the folder is changed.
pub(super) fn remove(venv: &Venv) -> Result<()> {
    files::remove(&venv.folder().join(FILE))
}

fn text(level: Level, release: &Release) -> String {
    format!("{}\n{}\n", level.name(), level.requirements(release).join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_reads_back_unless_it_is_of_other_versions_or_cut_off() {
        let folder = std::env::temp_dir().join(format!("xtask-stamp-file-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a temporary folder");
        let venv = Venv::new(folder.clone(), Release::DEFAULT);
        let read = || read(&venv);
        let mut found = vec![read()];
        for level in [Level::Minimal, Level::Full] {
            write(&venv, level).expect("a stamp");
            found.push(read());
        }
        let older = Release::of("2.11.0").expect("there is one");
        write(&Venv::new(folder.clone(), older), Level::Full).expect("a stamp");
        found.push(read());
        for wrong in ["minimal\n", ""] {
            fs::write(folder.join(FILE), wrong).expect("a stamp");
            found.push(read());
        }
        remove(&venv).expect("the stamp goes");
        let again = remove(&venv);
        fs::remove_dir_all(&folder).expect("the folder goes");

        assert_eq!(found, [None, Some(Level::Minimal), Some(Level::Full), None, None, None]);
        again.expect("no stamp is no error");
    }
}
