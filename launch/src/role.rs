//! The two roles in which launch runs itself again, which no user types.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// What this process is, if it is not the launcher.
#[derive(Clone, Copy)]
pub(crate) enum Role {
    /// About to become the program of a rank: see `shim`.
    Rank,
    /// Watching over the launcher's life: see `guard`.
    Guard,
}

impl Role {
    /// The role that the first word of a command line asks for.
    pub(crate) fn of(word: OsString) -> Option<Role> {
        [Role::Rank, Role::Guard].into_iter().find(|role| word == role.word())
    }

    /// A command that starts this very program in the role, even if its file has been replaced by
    /// a new build since.
    pub(crate) fn command(self) -> Command {
        let mut command = Command::new("/proc/self/exe");
        command.arg0("launch").arg(self.word());
        command
    }

    fn word(self) -> &'static str {
        match self {
            Role::Rank => "__rank",
            Role::Guard => "__guard",
        }
    }
}
