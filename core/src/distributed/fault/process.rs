//! Whether a process that another rank has reported is still running.

use nix::errno::Errno;
use serde::{Deserialize, Serialize};
use std::{fmt, fs, io, sync::LazyLock};

/// A process on this host, distinguished from a later one with the same pid.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Process {
    /// The kernel's boot and the pid namespace.
    realm: String,
    pid: u32,
    start_time: String,
}

pub(crate) enum State {
    Running,
    Stopped(u32),
    Ended(u32),
}

impl Process {
    /// The process with this pid; `None` if there is none, or no /proc.
    pub(crate) fn of(pid: u32) -> Option<Process> {
        Some(Process { realm: REALM.clone()?, pid, start_time: stat(pid).ok()?.1 })
    }

    /// `None` if the process runs on another host, or cannot be looked at now.
    pub(crate) fn look(&self) -> Option<State> {
        if REALM.as_ref()? != &self.realm {
            return None;
        }
        match stat(self.pid) {
            Ok((state, start_time)) if start_time == self.start_time => Some(match state {
                'Z' | 'X' => State::Ended(self.pid),
                'T' | 't' => State::Stopped(self.pid),
                _ => State::Running,
            }),
            Ok(_) => Some(State::Ended(self.pid)),
            Err(error) => says_ended(&error).then_some(State::Ended(self.pid)),
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            State::Running => f.write_str("runs"),
            State::Stopped(pid) => write!(f, "(pid {pid}) is stopped"),
            State::Ended(pid) => write!(f, "(pid {pid}) has ended"),
        }
    }
}

static REALM: LazyLock<Option<String>> = LazyLock::new(|| {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let namespace = fs::read_link("/proc/self/ns/pid").ok()?;
    Some(format!("{}/{}", boot.trim(), namespace.display()))
});

/// The state and the start time of a process, from /proc/PID/stat (proc_pid_stat(5), fields 3 and 22).
fn stat(pid: u32) -> io::Result<(char, String)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    parse(&stat).ok_or(io::ErrorKind::InvalidData.into())
}

fn parse(stat: &str) -> Option<(char, String)> {
    // The name in field 2 may contain spaces and parentheses; the last parenthesis closes it.
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    let state = fields.next()?.chars().next()?;
    Some((state, fields.nth(18)?.to_owned()))
}

/// Whether this error of reading /proc/PID/stat means no such process, and not that memory or open files are short.
fn says_ended(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(Errno::ESRCH as i32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_cannot_be_looked_at_has_not_therefore_ended() {
        let says = |errno: Errno| says_ended(&io::Error::from_raw_os_error(errno as i32));
        assert!(says(Errno::ENOENT) && says(Errno::ESRCH));
        assert!(!says(Errno::EMFILE) && !says(Errno::ENOMEM) && !says(Errno::EACCES));
    }
}
