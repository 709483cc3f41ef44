//! The file that says what a complete set-up contains. It is written last, so it exists only if everything else does.

use super::{Level, Venv};
use crate::{files, prelude::*};

const FILE: &str = ".setup-complete";

/// The level whose packages are all installed. None without a stamp of the release's versions.
pub(super) fn read(venv: &Venv) -> Option<Level> {
    let found = fs::read_to_string(venv.folder.join(FILE)).ok()?;
    [Level::Minimal, Level::Full].into_iter().find(|level| text(*level, venv.release) == found)
}

pub(super) fn write(venv: &Venv, level: Level) -> Result<()> {
    // Renamed into place, so that the stamp is complete whenever it exists.
    let (part, whole) = (venv.folder.join(".setup-complete.part"), venv.folder.join(FILE));
    files::write(&part, text(level, venv.release))?;
    fs::rename(&part, &whole).with_context(|| format!("cannot write {}", whole.display()))
}

/// Removes the stamp, before the folder is changed.
pub(super) fn remove(venv: &Venv) -> Result<()> {
    files::remove(&venv.folder.join(FILE))
}

fn text(level: Level, release: &Release) -> String {
    let name = format!("{level:?}").to_lowercase();
    format!("{name}\n{}\n", level.requirements(release).join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_reads_back_unless_it_is_of_other_versions_or_cut_off() {
        let folder = tempfile::tempdir().unwrap();
        let of = |release| Venv { folder: folder.path().to_owned(), release, is_for_arm: false };
        let venv = of(Release::DEFAULT);
        assert_eq!(read(&venv), None);
        for level in [Level::Minimal, Level::Full] {
            write(&venv, level).unwrap();
            assert_eq!(read(&venv), Some(level));
        }
        let older = Release::of("2.11.0").unwrap();
        write(&of(older), Level::Full).unwrap();
        assert_eq!(read(&venv), None);
        for wrong in ["minimal\n", ""] {
            fs::write(folder.path().join(FILE), wrong).unwrap();
            assert_eq!(read(&venv), None);
        }
        remove(&venv).unwrap();
        remove(&venv).unwrap();
    }
}
