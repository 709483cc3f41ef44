//! Fetches full MNIST (60,000 training and 10,000 test images) from its public mirrors.
//!
//! A file is written under another name first and gets its own only after its checksum was
//! found right, so a file of the right name is whole. What an interrupted download has left is
//! gone on with, not begun again.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use md5::{Digest, Md5};
use ureq::Agent;

use crate::{Error, Result};

/// Where the files of MNIST are found; the original server asks not to be used for downloads.
pub const MNIST_MIRRORS: [&str; 2] = [
    "https://ossci-datasets.s3.amazonaws.com/mnist",
    "https://storage.googleapis.com/cvdf-datasets/mnist",
];

const MNIST_FILES: [RemoteFile; 4] = [
    RemoteFile { name: "train-images-idx3-ubyte.gz", md5: "f68b3c2dcbeaaa9fbdd348bbdeb94873" },
    RemoteFile { name: "train-labels-idx1-ubyte.gz", md5: "d53e105ee54ea40749a09fcbcd1e9432" },
    RemoteFile { name: "t10k-images-idx3-ubyte.gz", md5: "9fb629c4189551a2d022fa330f9573f3" },
    RemoteFile { name: "t10k-labels-idx1-ubyte.gz", md5: "ec29112dd5afa0611ce80d1b7f02629c" },
];

/// A connection that breaks off is taken up once more before the next mirror is asked.
const ATTEMPTS_PER_MIRROR: usize = 2;

struct RemoteFile {
    name: &'static str,
    /// As torchvision has it.
    md5: &'static str,
}

/// Makes sure that MNIST is in the user's cache and returns the directory, which
/// [`Mnist::from_dir`](super::Mnist::from_dir) reads. What is there already is not fetched again.
///
/// The cache is `tch-parallel/mnist` in `XDG_CACHE_HOME` or else in `~/.cache`. All ranks may
/// call this at once: one downloads, the others wait for it.
pub fn mnist() -> Result<PathBuf> {
    let dir = cache_dir()?.join("tch-parallel").join("mnist");
    mnist_from(&MNIST_MIRRORS, &dir)?;
    Ok(dir)
}

/// Like [`mnist`], from other mirrors (tried in this order) and into another directory.
pub fn mnist_from(mirrors: &[&str], dir: &Path) -> Result<()> {
    fetch_missing(&MNIST_FILES, mirrors, dir)
}

fn cache_dir() -> Result<PathBuf> {
    let variable = |name| std::env::var_os(name).map(PathBuf::from);
    variable("XDG_CACHE_HOME")
        // The specification says that a relative path is to be ignored.
        .filter(|dir| dir.is_absolute())
        .or_else(|| Some(variable("HOME")?.join(".cache")))
        .ok_or_else(|| Error::Environment {
            variable: "HOME".into(),
            found: "is not set".into(),
            expected: "a home directory, or XDG_CACHE_HOME, to keep the downloaded files in".into(),
        })
}

fn fetch_missing(files: &[RemoteFile], mirrors: &[&str], dir: &Path) -> Result<()> {
    if files.iter().all(|file| dir.join(file.name).is_file()) {
        return Ok(());
    }
    fs::create_dir_all(dir).map_err(Error::io("create directory", dir))?;
    // Held until the end of this function, and no longer than the process lives.
    let lock_path = dir.join(".lock");
    let lock = File::create(&lock_path).map_err(Error::io("create", &lock_path))?;
    lock.lock().map_err(Error::io("lock", &lock_path))?;

    let agent: Agent = Agent::config_builder()
        .timeout_connect(Some(Duration::from_secs(10)))
        .timeout_recv_response(Some(Duration::from_secs(30)))
        .timeout_recv_body(Some(Duration::from_secs(300)))
        .http_status_as_error(false)
        .build()
        .into();
    for file in files {
        // Another process may have fetched it while this one waited for the lock.
        if !dir.join(file.name).is_file() {
            fetch(&agent, file, mirrors, dir)?;
        }
    }
    Ok(())
}

fn fetch(agent: &Agent, file: &RemoteFile, mirrors: &[&str], dir: &Path) -> Result<()> {
    let target = dir.join(file.name);
    let part = dir.join(format!("{}.part", file.name));
    let mut failures = Vec::new();
    for mirror in mirrors {
        let url = format!("{mirror}/{}", file.name);
        for _ in 0..ATTEMPTS_PER_MIRROR {
            if let Err(failure) = complete(agent, &url, &part).map_err(Error::io("write", &part))? {
                failures.push(format!("{url}: {failure}"));
                continue;
            }
            let found = checksum(&part).map_err(Error::io("read", &part))?;
            if found == file.md5 {
                return fs::rename(&part, &target).map_err(Error::io("create", &target));
            }
            fs::remove_file(&part).map_err(Error::io("remove", &part))?;
            failures.push(format!(
                "{url}: the MD5 checksum is {found}, not {}; what was fetched is deleted",
                file.md5
            ));
        }
    }
    failures.dedup();
    Err(Error::io("download", target)(io::Error::other(failures.join("; "))))
}

/// Fetches what is missing in the file `part`. The outer error is one of this file, which no other
/// mirror can help with; the inner one is the mirror's.
fn complete(agent: &Agent, url: &str, part: &Path) -> io::Result<Result<(), String>> {
    let have = fs::metadata(part).map_or(0, |metadata| metadata.len());
    let mut request = agent.get(url);
    if have > 0 {
        request = request.header("Range", format!("bytes={have}-"));
    }
    let mut response = match request.call() {
        Ok(response) => response,
        Err(error) => return Ok(Err(error.to_string())),
    };
    let mut options = OpenOptions::new();
    let mut file = match response.status().as_u16() {
        206 if have > 0 => options.append(true).open(part)?,
        // Also the answer of a mirror that knows no ranges: it sends everything.
        200 => options.create(true).write(true).truncate(true).open(part)?,
        // Nothing is missing. Whether it is right the checksum will tell.
        416 if have > 0 => return Ok(Ok(())),
        status => return Ok(Err(format!("answers with status {status}"))),
    };

    let mut body = response.body_mut().as_reader();
    let mut buffer = vec![0; 1 << 16];
    loop {
        match body.read(&mut buffer) {
            Ok(0) => return file.sync_all().map(Ok),
            Ok(n) => file.write_all(&buffer[..n])?,
            Err(error) => return Ok(Err(error.to_string())),
        }
    }
}

fn checksum(path: &Path) -> io::Result<String> {
    Ok(Md5::digest(fs::read(path)?).iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests;
