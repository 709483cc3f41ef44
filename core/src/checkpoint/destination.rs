//! Where a checkpoint is written: first to a temporary file beside it, which is then renamed.

use crate::{Error, Result};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

/// Refuses a path to which [`save`](super::save) could not write, so that a long training does not
/// end in that error. For the process that will write: rank 0.
///
/// # Errors
/// [`Error::Format`] for a directory, and for a file in a directory that does not exist;
/// [`Error::Io`] if the directory is not writable.
pub fn check_destination(path: impl AsRef<Path>) -> Result<()> {
    let path = path.as_ref();
    let directory = directory(path);
    if !directory.is_dir() {
        return Err(Error::format(
            path,
            format!("the directory {} does not exist", directory.display()),
            "a file in an existing directory; create it first",
        ));
    }
    if path.is_dir() {
        return Err(Error::format(path, "a directory", "the name of a file to write"));
    }
    let temporary = temporary(path);
    File::create(&temporary).map_err(Error::io("write to the directory of", path))?;
    fs::remove_file(&temporary).map_err(Error::io("remove", temporary))
}

/// Calls `write` with a temporary path, and renames that file to `path`. Even if the process or the
/// machine stops, `path` always holds the complete old file or the complete new one.
///
/// Removes what a killed run has left. If another run writes to the same path, which is a mistake,
/// one of the two fails, and the file is the other's.
pub(super) fn replace(path: &Path, write: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    remove_leftovers(path).map_err(Error::io("write to the directory of", path))?;
    let temporary = temporary(path);
    let result = write(&temporary).and_then(|()| {
        // Otherwise the name could reach the disk before the contents.
        sync(&temporary)?;
        fs::rename(&temporary, path).map_err(Error::io("rename to", path))?;
        // Otherwise a power failure could bring the old name back.
        sync(directory(path))
    });
    if result.is_err() {
        // It may not exist, depending on where the write failed.
        let _ = fs::remove_file(&temporary);
    }
    result
}

fn sync(path: &Path) -> Result<()> {
    File::open(path).and_then(|file| file.sync_all()).map_err(Error::io("write to disk", path))
}

fn directory(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// In the same directory, since a rename across file systems is not atomic.
fn temporary(path: &Path) -> PathBuf {
    let [begin, end] = around_process_id(path);
    directory(path).join(format!("{begin}{}{end}", std::process::id()))
}

/// The parts of a temporary file's name before and after the pid.
fn around_process_id(path: &Path) -> [String; 2] {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    [format!(".{name}."), ".tmp".into()]
}

fn remove_leftovers(path: &Path) -> io::Result<()> {
    let [begin, end] = around_process_id(path);
    for entry in fs::read_dir(directory(path))? {
        let entry = entry?;
        let name = entry.file_name();
        let process_id =
            name.to_str().and_then(|name| name.strip_prefix(&begin)?.strip_suffix(&end));
        if process_id.is_some_and(|id| !id.is_empty() && id.bytes().all(|b| b.is_ascii_digit())) {
            match fs::remove_file(entry.path()) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(directory: &Path) -> Vec<String> {
        let entries = fs::read_dir(directory).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_destination_in_a_missing_directory_is_found_before_training() {
        let directory = tempfile::tempdir().unwrap();
        let missing = directory.path().join("missing/model.safetensors");
        let error = check_destination(&missing).unwrap_err().to_string();
        assert!(error.contains("does not exist"), "{error}");
        assert!(check_destination(directory.path()).is_err());
        check_destination(directory.path().join("model.safetensors")).unwrap();
        assert!(names(directory.path()).is_empty());
    }

    #[test]
    fn a_failure_leaves_the_old_file_and_nothing_else() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("model");
        let refused = || Error::Io {
            operation: "write",
            path: "model".into(),
            source: io::ErrorKind::StorageFull.into(),
        };
        fs::write(&path, "old").unwrap();
        replace(&path, |temporary| {
            fs::write(temporary, "n").unwrap();
            Err(refused())
        })
        .unwrap_err();
        assert_eq!(fs::read(&path).unwrap(), b"old");
        assert_eq!(names(directory.path()), ["model"]);
    }

    #[test]
    fn what_killed_runs_have_left_is_removed_and_nothing_else() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("model");
        for name in [".model.1.tmp", ".model.4294967295.tmp", ".model.best.tmp", ".model..tmp"] {
            fs::write(directory.path().join(name), "").unwrap();
        }
        replace(&path, |temporary| {
            fs::write(temporary, "new").unwrap();
            Ok(())
        })
        .unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(names(directory.path()), [".model..tmp", ".model.best.tmp", "model"]);
    }
}
