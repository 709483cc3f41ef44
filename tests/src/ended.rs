//! How a process has ended, and what is expected of that.

use anyhow::{Result, ensure};
use std::{fmt, process::ExitStatus};

/// What a process has left behind.
#[derive(Debug)]
pub struct Ended {
    /// Its exit code, or the signal that killed it.
    pub status: ExitStatus,
    /// All that it and its children have printed.
    pub stdout: String,
    pub stderr: String,
    pub(crate) command: String,
}

impl Ended {
    /// Fails, with all its output, unless the process has ended with code 0.
    pub fn expect_success(self) -> Result<Self> {
        self.expect_code(0)
    }

    /// Fails, with all its output, unless the process has ended with this code.
    pub fn expect_code(self, code: i32) -> Result<Self> {
        ensure!(self.status.code() == Some(code), "expected exit code {code}: {self}");
        Ok(self)
    }

    /// Fails, with all its output, unless its messages contain each of these texts.
    pub fn expect_messages(&self, texts: &[&str]) -> Result<()> {
        for text in texts {
            ensure!(self.stderr.contains(text), "expected `{text}` on stderr: {self}");
        }
        Ok(())
    }

    /// Fails, with all its output, unless one line of its messages contains all of these texts.
    pub fn expect_line(&self, texts: &[&str]) -> Result<()> {
        let found = self.stderr.lines().any(|line| texts.iter().all(|text| line.contains(text)));
        ensure!(found, "expected a line with {texts:?} on stderr: {self}");
        Ok(())
    }
}

pub fn expect_texts(text: &str, parts: &[&str]) -> Result<()> {
    for part in parts {
        ensure!(text.contains(part), "there is no `{part}` in {text}");
    }
    Ok(())
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { status, stdout, stderr, command } = self;
        write!(f, "`{command}` ended with {status}\nstdout:\n{stdout}\nstderr:\n{stderr}")
    }
}

#[cfg(test)]
mod tests {
    use crate::{Job, programs::shell};

    #[test]
    fn a_process_that_fails_is_reported_with_its_output() {
        let ended = Job::new().unwrap().run(shell("echo this is wrong >&2; exit 3")).unwrap();
        let error = ended.expect_success().unwrap_err().to_string();
        assert!(error.contains("this is wrong") && error.contains("exit status: 3"), "{error}");
    }
}
