//! Downloads data sets from their public mirrors into the user's cache.
//!
//! The cache is `tch-parallel` in `XDG_CACHE_HOME`, or else in `~/.cache`. All ranks may request a
//! data set at once: one downloads it, the others wait. Existing files are not downloaded again.
//!
//! A file is downloaded under a temporary name and renamed only after its checksum has been
//! verified, so a file with the final name is complete. An interrupted download is resumed.

use crate::{Error, Result};
use md5::{Digest, Md5};
use std::fs::{self, File, OpenOptions};
use std::{io, io::Read, io::Write, path::Path, path::PathBuf, time::Duration};
use ureq::Agent;

mod cifar10;
mod mnist;

pub use cifar10::{CIFAR10_MIRRORS, cifar10, cifar10_from};
pub use mnist::{MNIST_MIRRORS, mnist, mnist_from};

/// A broken connection is resumed once before the next mirror is tried.
const ATTEMPTS_PER_MIRROR: usize = 2;

struct RemoteFile {
    name: &'static str,
    /// As published by the data set's author or by torchvision.
    md5: &'static str,
}

/// The folder of a data set in the cache; it may not exist yet.
fn cache_dir(dataset: &str) -> Result<PathBuf> {
    let variable = |name| std::env::var_os(name).map(PathBuf::from);
    variable("XDG_CACHE_HOME")
        // The specification says to ignore a relative path.
        .filter(|dir| dir.is_absolute())
        .or_else(|| Some(variable("HOME")?.join(".cache")))
        .map(|cache| cache.join("tch-parallel").join(dataset))
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
    let _lock = lock(dir)?;
    fetch_each(files, mirrors, dir)
}

/// Creates the directory and waits for its lock, which is held until it is dropped or the process ends.
fn lock(dir: &Path) -> Result<File> {
    fs::create_dir_all(dir).map_err(Error::io("create directory", dir))?;
    let path = dir.join(".lock");
    let lock = File::create(&path).map_err(Error::io("create", &path))?;
    lock.lock().map_err(Error::io("lock", &path))?;
    Ok(lock)
}

/// Downloads missing files; the caller holds the directory's lock.
fn fetch_each(files: &[RemoteFile], mirrors: &[&str], dir: &Path) -> Result<()> {
    let seconds = |count| Some(Duration::from_secs(count));
    let config = Agent::config_builder().http_status_as_error(false);
    let config = config.timeout_connect(seconds(10)).timeout_recv_response(seconds(30));
    let agent: Agent = config.timeout_per_read(seconds(60)).build().into();
    // Another process may have downloaded some while this one waited for the lock.
    let mut missing = files.iter().filter(|file| !dir.join(file.name).is_file());
    missing.try_for_each(|file| fetch(&agent, file, mirrors, dir))
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
            let bytes = fs::read(&part).map_err(Error::io("read", &part))?;
            let found: String = Md5::digest(bytes).iter().map(|it| format!("{it:02x}")).collect();
            if found == file.md5 {
                return fs::rename(&part, &target).map_err(Error::io("create", &target));
            }
            fs::remove_file(&part).map_err(Error::io("remove", &part))?;
            failures.push(format!(
                "{url}: the MD5 checksum is {found}, not {}; the downloaded file was deleted",
                file.md5
            ));
        }
    }
    failures.dedup();
    Err(Error::io("download", target)(io::Error::other(failures.join("; "))))
}

/// Downloads the rest of `part`. The inner error is the mirror's, the outer one this file's: no mirror would help.
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
        // Also the answer of a mirror that does not support ranges: it sends everything.
        200 => options.create(true).write(true).truncate(true).open(part)?,
        // Nothing is missing. The checksum decides whether it is right.
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

#[cfg(test)]
mod tests;
