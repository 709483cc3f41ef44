//! A second process that outlives a launcher killed with SIGKILL for as long as it takes to kill
//! what the ranks have started. The kernel's parent-death signal reaches the ranks only, not the
//! Python under a rank's shell.

use std::collections::BTreeSet;
use std::io::{BufRead, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ExitCode, Stdio};

use anyhow::{Context, Result};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use crate::role::Role;

/// The launcher's end of the guard.
pub(crate) struct Guard {
    child: Child,
}

impl Guard {
    /// Starts the guard.
    pub(crate) fn start() -> Result<Self> {
        let child = Role::Guard
            .command()
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // Ctrl-C at the terminal is for the launcher.
            .process_group(0)
            .spawn()
            .context("cannot start the guard of the ranks")?;
        Ok(Guard { child })
    }

    /// Has the process group killed if the launcher dies.
    pub(crate) fn protect(&self, group: Pid) {
        self.tell('+', group);
    }

    /// Forgets a process group that is gone, before the kernel can give its number to another.
    pub(crate) fn release(&self, group: Pid) {
        self.tell('-', group);
    }

    fn tell(&self, sign: char, group: Pid) {
        if let Some(mut pipe) = self.child.stdin.as_ref() {
            // Without a guard the parent-death signal still holds.
            let _ = pipe.write_all(format!("{sign}{group}\n").as_bytes());
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // `wait` closes the pipe first, at which the guard ends.
        let _ = self.child.wait();
    }
}

/// The guard's own half: notes the groups until the pipe closes, which it does when the launcher is
/// gone, and kills those that are left.
pub(crate) fn watch_launcher() -> ExitCode {
    let mut groups = BTreeSet::new();
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        let Some((sign, Ok(group))) = line.split_at_checked(1).map(|(s, n)| (s, n.parse())) else {
            continue;
        };
        match sign {
            "+" => groups.insert(group),
            _ => groups.remove(&group),
        };
    }
    for group in groups {
        // Gone already: just as well.
        let _ = killpg(Pid::from_raw(group), Signal::SIGKILL);
    }
    ExitCode::SUCCESS
}
