//! CIFAR-10.

use super::{RemoteFile, cache_dir, fetch_each, lock};
use crate::{Error, Result};
use flate2::read::GzDecoder;
use std::{fs, fs::File, io, path::Path, path::PathBuf};
use tar::Archive;

/// The mirrors of the archive: only the author's.
pub const CIFAR10_MIRRORS: [&str; 1] = ["https://www.cs.toronto.edu/~kriz"];

const ARCHIVE: RemoteFile =
    RemoteFile { name: "cifar-10-binary.tar.gz", md5: "c32a1d4ab5d03f1284b67883e8d87530" };
const FOLDER: &str = "cifar-10-batches-bin";
const FILES: [&str; 6] = [
    "data_batch_1.bin",
    "data_batch_2.bin",
    "data_batch_3.bin",
    "data_batch_4.bin",
    "data_batch_5.bin",
    "test_batch.bin",
];

/// Makes sure that CIFAR-10 (170 MB to download, 184 MB unpacked) is in the user's cache, in
/// `cifar-10`, and returns the directory, which `Cifar10::from_dir` reads.
///
/// # Errors
/// [`Error::Io`] if the cache is not writable, or if no mirror has the right file, with the reason
/// for each; [`Error::Environment`] if neither HOME nor XDG_CACHE_HOME is set.
pub fn cifar10() -> Result<PathBuf> {
    let dir = cache_dir("cifar-10")?;
    cifar10_from(&CIFAR10_MIRRORS, &dir)?;
    Ok(dir)
}

/// Like [`cifar10`], from other mirrors (tried in this order) and into another directory.
pub fn cifar10_from(mirrors: &[&str], dir: &Path) -> Result<()> {
    let folder = dir.join(FOLDER);
    if folder.is_dir() {
        return Ok(());
    }
    let _lock = lock(dir)?;
    // Another process may have done it while this one waited for the lock.
    if !folder.is_dir() {
        fetch_each(&[ARCHIVE], mirrors, dir)?;
        let archive = dir.join(ARCHIVE.name);
        unpack(&archive, &folder)?;
        fs::remove_file(&archive).map_err(Error::io("remove", &archive))?;
    }
    Ok(())
}

/// Writes the archive's files into `folder`, which is renamed into place when complete.
fn unpack(archive: &Path, folder: &Path) -> Result<()> {
    let part = folder.with_extension("part");
    fs::create_dir_all(&part).map_err(Error::io("create directory", &part))?;
    let file = File::open(archive).map_err(Error::io("open", archive))?;
    let mut found = Vec::new();
    let mut entries = Archive::new(GzDecoder::new(file));
    for entry in entries.entries().map_err(Error::io("unpack", archive))? {
        let mut entry = entry.map_err(Error::io("unpack", archive))?;
        let path = entry.path().map_err(Error::io("unpack", archive))?.into_owned();
        // Only known names, so that nothing is written elsewhere.
        let Some(name) = FILES.iter().find(|name| path == Path::new(FOLDER).join(name)) else {
            continue;
        };
        let target = part.join(name);
        let mut file = File::create(&target).map_err(Error::io("create", &target))?;
        io::copy(&mut entry, &mut file).map_err(Error::io("unpack", archive))?;
        file.sync_all().map_err(Error::io("write", &target))?;
        found.push(*name);
    }
    if let Some(missing) = FILES.iter().find(|name| !found.contains(name)) {
        let expected = "the archive of CIFAR-10's binary version";
        return Err(Error::format(archive, format!("holds no {FOLDER}/{missing}"), expected));
    }
    fs::rename(&part, folder).map_err(Error::io("create", folder))
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::{Compression, write::GzEncoder};
    use tar::{Builder, Header};

    /// An archive of these files, each containing its own name.
    fn archive(dir: &Path, files: &[&str]) -> PathBuf {
        let path = dir.join("archive.tar.gz");
        let file = File::create(&path).unwrap();
        let mut builder = Builder::new(GzEncoder::new(file, Compression::fast()));
        for name in files {
            let mut header = Header::new_gnu();
            header.set_size(name.len() as u64);
            header.set_mode(0o644);
            let path = Path::new(FOLDER).join(name);
            builder.append_data(&mut header, path, name.as_bytes()).unwrap();
        }
        builder.into_inner().unwrap().finish().unwrap();
        path
    }

    #[test]
    fn the_archives_images_are_unpacked_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let files = [&["readme.html", "deep/er.bin"], &FILES[..]].concat();
        let folder = dir.path().join(FOLDER);
        unpack(&archive(dir.path(), &files), &folder).unwrap();
        let entries = fs::read_dir(&folder).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, FILES);
        assert_eq!(fs::read_to_string(folder.join("test_batch.bin")).unwrap(), "test_batch.bin");
        assert!(!dir.path().join("cifar-10-batches-bin.part").exists());
    }

    #[test]
    fn an_archive_that_lacks_a_file_leaves_no_folder() {
        let dir = tempfile::tempdir().unwrap();
        let path = archive(dir.path(), &FILES[..5]);
        let folder = dir.path().join(FOLDER);
        let found = format!("{}: holds no cifar-10-batches-bin/test_batch.bin", path.display());
        let expected = format!("{found}; expected the archive of CIFAR-10's binary version");
        assert_eq!(unpack(&path, &folder).unwrap_err().to_string(), expected);
        assert!(!folder.exists());
    }

    #[test]
    fn what_is_unpacked_is_not_fetched_again() {
        let dir = tempfile::tempdir().unwrap();
        cifar10_from(&[], dir.path()).unwrap_err();
        fs::create_dir(dir.path().join(FOLDER)).unwrap();
        cifar10_from(&[], dir.path()).unwrap();
    }
}
