//! No rank outlives the launcher, even one killed with SIGKILL. Two helpers see to that; both are
//! launch, run again under a first argument that no user types.
//!
//! - Each rank starts as `__rank`, which sets the kernel's parent-death signal and then becomes the
//!   program. Safe Rust cannot do the same between fork and exec.
//! - One `__guard` outlives the launcher just long enough to kill the ranks' process groups, since
//!   the parent-death signal reaches the ranks only, not the Python under a rank's shell. It also
//!   removes the launcher's private directory.

use crate::prelude::*;
use nix::sys::prctl::set_pdeathsig;
use nix::unistd::{Pid, getppid};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::flag;
use std::{ffi::OsString, os::unix::process::CommandExt};

/// The first words of the helpers' command lines.
const RANK: &str = "__rank";
const GUARD: &str = "__guard";

/// Does the work of the helper that the first word of a command line asks for, if it asks for one.
pub(crate) fn help(mut words: impl Iterator<Item = OsString>) -> Option<ExitCode> {
    match words.next()?.to_str()? {
        RANK => Some(become_program(words)),
        GUARD => Some(watch_launcher(words)),
        _ => None,
    }
}

/// Starts this very executable as a helper, even if a new build has replaced its file.
fn helper(word: &str) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg0("launch").arg(word);
    command
}

/// The command that starts `program` as a rank of this launcher.
pub(crate) fn rank_command(program: &[OsString]) -> Command {
    let mut command = helper(RANK);
    command.arg(std::process::id().to_string()).args(program);
    command
}

/// Becomes the program, or fails. `words` are the launcher's process ID, the program and its arguments.
fn become_program(mut words: impl Iterator<Item = OsString>) -> ExitCode {
    let launcher = words.next();
    let Some(program) = words.next() else {
        say("__rank is how launch starts a rank; it is not for use by hand");
        return ExitCode::FAILURE;
    };
    // The kernel kills this process when the launcher dies, however that happens.
    if let Err(error) = set_pdeathsig(Signal::SIGKILL) {
        say(format_args!("cannot set a rank's parent-death signal: {error}"));
        return ExitCode::FAILURE;
    }
    // If the launcher died before that line, no signal will come.
    if launcher != Some(getppid().to_string().into()) {
        return ExitCode::FAILURE;
    }
    let error = Command::new(&program).args(words).exec();
    say(format_args!("cannot start {}: {error}", Path::new(&program).display()));
    // A shell's codes for "not found" and "cannot be executed".
    ExitCode::from(if error.kind() == ErrorKind::NotFound { 127 } else { 126 })
}

pub(crate) struct Guard(Child);

impl Guard {
    /// Starts the guard, which removes `directory` when the launcher is over.
    pub(crate) fn start(directory: Option<&Path>) -> Result<Self> {
        let mut guard = helper(GUARD);
        guard.args(directory).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        // Ctrl-C at the terminal is for the launcher.
        Ok(Guard(guard.process_group(0).spawn().context("cannot start the guard process")?))
    }

    pub(crate) fn protect(&self, group: Pid) {
        self.tell('+', group);
    }

    /// Forgets a process group that is gone, before the kernel can reuse its number.
    pub(crate) fn release(&self, group: Pid) {
        self.tell('-', group);
    }

    fn tell(&self, sign: char, group: Pid) {
        if let Some(mut pipe) = self.0.stdin.as_ref() {
            // If the guard is dead, the parent-death signal still works.
            let _ = pipe.write_all(format!("{sign}{group}\n").as_bytes());
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // `wait` first closes the pipe, which ends the guard.
        let _ = self.0.wait();
    }
}

/// Notes the process groups until the launcher's pipe closes, then kills those left. `words`: a directory to remove.
fn watch_launcher(words: impl Iterator<Item = OsString>) -> ExitCode {
    let mut groups = BTreeSet::new();
    // Whoever sends such a signal to all processes of a job ends the launcher, too, and with it this one.
    for signal in [SIGHUP, SIGINT, SIGQUIT, SIGTERM] {
        let _ = flag::register(signal, Arc::default());
    }
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
        // The only error is that the group has ended already.
        let _ = killpg(Pid::from_raw(group), Signal::SIGKILL);
    }
    for directory in words {
        // Nobody is left to whom an error could be told.
        let _ = fs::remove_dir_all(directory);
    }
    ExitCode::SUCCESS
}
