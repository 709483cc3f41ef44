//! A file of whole records, whatever happens while one is written.

use std::io::{self, Read, Seek, SeekFrom, Write};
use std::{fs, fs::File, path::Path, path::PathBuf};
use tch_parallel::{Error, Result};

/// No line is longer.
const LONGEST: u64 = 1 << 16;

/// A file to which records are appended.
#[derive(Debug)]
pub(crate) struct RecordFile {
    file: File,
    path: PathBuf,
    /// Where the next record begins.
    length: u64,
}

impl RecordFile {
    /// Creates the file `name` in `dir`, and `dir` itself if it does not exist.
    pub(crate) fn create(dir: &Path, name: &str) -> Result<Self> {
        fs::create_dir_all(dir).map_err(Error::io("create directory", dir))?;
        let path = dir.join(name);
        let file = File::create(&path).map_err(Error::io("create", &path))?;
        Ok(Self { file, path, length: 0 })
    }

    /// Opens a file of lines to add to it, or creates it. Half a line, which a kill may leave, goes.
    pub(crate) fn open(dir: &Path, name: &str) -> Result<Self> {
        let path = dir.join(name);
        let Ok(file) = File::options().read(true).write(true).open(&path) else {
            return Self::create(dir, name);
        };
        let mut opened = Self { file, path, length: 0 };
        opened.cut_half_a_line().map_err(Error::io("open", &opened.path))?;
        Ok(opened)
    }

    fn cut_half_a_line(&mut self) -> io::Result<()> {
        let mut last = Vec::new();
        let begin = self.file.metadata()?.len().saturating_sub(LONGEST);
        self.file.seek(SeekFrom::Start(begin))?;
        self.file.read_to_end(&mut last)?;
        let whole = last.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        self.length = begin + whole as u64;
        self.cut()
    }

    /// Appends a record, which is in the file when this returns. One that does not fit on the disk leaves nothing.
    pub(crate) fn append(&mut self, record: &[u8]) -> Result<()> {
        // In one call, so that a kill leaves no half either.
        self.file.write_all(record).map_err(|error| {
            // The first error is the one to report.
            let _ = self.cut();
            Error::io("write", &self.path)(error)
        })?;
        self.length += record.len() as u64;
        Ok(())
    }

    fn cut(&mut self) -> io::Result<()> {
        self.file.set_len(self.length)?;
        self.file.seek(SeekFrom::Start(self.length)).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::resource::{Resource, setrlimit};
    use std::process::Command;

    /// The limit on the size of files is the whole process's, so the test runs in one of its own.
    #[test]
    fn a_record_that_does_not_fit_leaves_no_half() {
        const DIRECTORY: &str = "REPORT_TEST_DIRECTORY";
        if let Some(dir) = std::env::var_os(DIRECTORY) {
            let program = || -> Result<()> {
                setrlimit(Resource::RLIMIT_FSIZE, 10, 10).unwrap();
                let mut file = RecordFile::create(dir.as_ref(), "records")?;
                file.append(b"first\n")?;
                let error = file.append(b"second\n").unwrap_err();
                assert!(error.to_string().starts_with("cannot write "), "{error}");
                file.append(b"3rd\n")
            };
            tch_parallel::distributed::record(program).unwrap();
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let test = "record_file::tests::a_record_that_does_not_fit_leaves_no_half";
        let mut again = Command::new(std::env::current_exe().unwrap());
        let ended = again.args(["--exact", test]).env(DIRECTORY, dir.path()).output().unwrap();
        assert!(ended.status.success(), "{ended:?}");
        assert_eq!(fs::read_to_string(dir.path().join("records")).unwrap(), "first\n3rd\n");
    }
}
