//! The first moments of a rank: launch, executed again, ties its life to the launcher's and then
//! becomes the program. Done between fork and exec instead, the same could not be written in safe
//! Rust.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};

use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use nix::unistd::getppid;

use crate::report::say;
use crate::role::Role;

/// The command that starts `program` as a rank of this launcher.
pub(crate) fn command(program: &[OsString]) -> Command {
    let mut command = Role::Rank.command();
    command.arg(std::process::id().to_string()).args(program);
    command
}

/// Becomes the program; returns only if that failed. `words`: the launcher's process id, the
/// program and its arguments.
pub(crate) fn become_program(mut words: impl Iterator<Item = OsString>) -> ExitCode {
    let launcher = words.next();
    let Some(program) = words.next() else {
        say("this is how launch starts a rank: it is not for use by hand");
        return ExitCode::FAILURE;
    };
    // The kernel kills this process when the launcher dies, however that happens.
    if let Err(error) = set_pdeathsig(Signal::SIGKILL) {
        say(format_args!("cannot tie a rank to the launcher: {error}"));
        return ExitCode::FAILURE;
    }
    // A launcher that died before that line will send nothing.
    if launcher != Some(getppid().to_string().into()) {
        return ExitCode::FAILURE;
    }
    let error = Command::new(&program).args(words).exec();
    say(format_args!("cannot start {}: {error}", Path::new(&program).display()));
    // A shell's codes for "not found" and "cannot be executed".
    ExitCode::from(if error.kind() == ErrorKind::NotFound { 127 } else { 126 })
}
