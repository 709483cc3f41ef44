//! `cargo xtask run dp-basic -- speedup --devices cuda`: builds a program of the workspace for what
//! this machine has, then becomes the program.

use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::program::Program;
use crate::workspace::Workspace;
use crate::{command, setup};

/// Does the set-up if it is missing, builds the program, and replaces this process with it.
pub(crate) fn run(workspace: &Workspace, program: &OsStr, args: &[OsString]) -> Result<()> {
    let found = Program::find(program).with_context(|| {
        format!("{} is no program of this workspace, as ddp-mnist is", program.display())
    })?;
    setup::ensure(workspace, setup::Level::for_this_machine())?;
    let mut build = workspace.cargo();
    let executable = found.add_to(build.args(["build", "--release"]), workspace);
    command::run_quietly(&mut build)?;
    become_program(&executable, args)
}

/// Replaces this process with a program; returns only if that fails.
pub(crate) fn become_program(executable: &Path, args: &[OsString]) -> Result<()> {
    let mut program = Command::new(executable);
    command::forget_this_package(&mut program);
    let error = program.args(args).exec();
    Err(error).with_context(|| format!("cannot start {}", executable.display()))
}
