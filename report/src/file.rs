//! Writing a text to a file: a chart, a vocabulary.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use tch_parallel::{Error, Result};

/// Writes `text` to `path`, whose directory must exist, and replaces an existing file.
///
/// The text is first written to a temporary file in the same directory, which is then renamed. So a
/// browser that watches a chart, or a run that reads a vocabulary, always finds a complete file,
/// the old one or the new one.
///
/// # Errors
/// [`Error::Io`] with the path that could not be written; no half-written file is left behind.
pub fn save(path: impl AsRef<Path>, text: &str) -> Result<()> {
    let path = path.as_ref();
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(format!(".{}.tmp", std::process::id()));
    let written = File::create(&temporary)
        .and_then(|mut file| {
            file.write_all(text.as_bytes())?;
            // Without this the new name could reach the disk before the contents.
            file.sync_all()
        })
        .and_then(|()| fs::rename(&temporary, path));
    if written.is_err() {
        // An error is ignored: the file may not even have been created.
        let _ = fs::remove_file(&temporary);
    }
    written.map_err(Error::io("write", path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_chart_replaces_the_old_one_and_leaves_nothing_beside_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("chart.svg");
        save(&path, "<svg>a longer chart</svg>").unwrap();
        save(&path, "<svg/>").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "<svg/>");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_path_that_cannot_be_written_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("missing/chart.svg");
        let error = save(&path, "<svg/>").unwrap_err();
        assert_eq!(error.to_string(), format!("cannot write {}", path.display()));
    }

    #[test]
    fn a_directory_in_the_place_of_the_chart_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("chart.svg");
        fs::create_dir(&path).unwrap();
        save(&path, "<svg/>").unwrap_err();
        assert!(path.is_dir());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
