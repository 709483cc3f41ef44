//! One process at a time in a folder.

use crate::files::make;
use anyhow::{Context, Result};
use std::{fs::File, fs::TryLockError, path::Path, process::Stdio};

/// The lock's file in the folder. It stays when the rest of the folder is removed.
pub(crate) const FILE: &str = ".lock";

/// The right to change the folder. Released when it is dropped, or when the last process that holds it dies.
pub(crate) struct Lock(File);

impl Lock {
    /// Waits for a process that holds it, in this or another terminal.
    pub(crate) fn take(folder: &Path) -> Result<Self> {
        make(folder)?;
        let path = folder.join(FILE);
        let file = File::options().read(true).write(true).create(true).truncate(false).open(&path);
        let file = file.with_context(|| format!("cannot open {}", path.display()))?;
        let locked = match file.try_lock() {
            Err(TryLockError::WouldBlock) => {
                eprintln!("another process is at work in {}: waiting for it", folder.display());
                file.lock()
            }
            Err(TryLockError::Error(error)) => Err(error),
            Ok(()) => Ok(()),
        };
        locked.with_context(|| format!("cannot lock {}", path.display()))?;
        Ok(Self(file))
    }

    /// An empty standard input for a child, which makes it a holder of the lock, also if it outlives a killed set-up.
    pub(crate) fn as_stdin(&self) -> Result<Stdio> {
        Ok(self.0.try_clone().context("cannot share the lock")?.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_child_keeps_the_lock_of_a_parent_that_is_gone() {
        let folder = tempfile::tempdir().unwrap();
        let lock = Lock::take(folder.path()).unwrap();
        let stdin = lock.as_stdin().unwrap();
        let mut child = Command::new("sleep").arg("60").stdin(stdin).spawn().unwrap();
        drop(lock);

        let other = File::open(folder.path().join(FILE)).unwrap();
        let while_it_lives = other.try_lock();
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(while_it_lives.is_err());
        // Not try_lock, because another test's child holds all files of this process until it has called exec.
        other.lock().unwrap();
    }
}
