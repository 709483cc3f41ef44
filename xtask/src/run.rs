//! `cargo xtask run dp-basic -- speedup`: builds a program for what this machine has, then becomes the program.

use crate::{prelude::*, program::Program, setup};
use std::os::unix::process::CommandExt;

/// Does the set-up if it is missing, builds the program, and replaces this process with it.
pub(crate) fn run(workspace: &Workspace, line: &[OsString]) -> Result<()> {
    let (program, args) = program_and_arguments(line)?;
    let found = Program::find(program).with_context(|| {
        format!("{} is no program of this workspace, as ddp-mnist is", program.display())
    })?;
    setup::ensure(workspace, setup::Level::for_this_machine())?;
    let mut build = workspace.cargo();
    let executable = found.add_to(build.args(["build", "--release"]), workspace);
    command::run_quietly(&mut build)?;
    become_program(&executable, args)
}

/// The program, and what follows it, without the `--` between them, as in `cargo run`.
pub(crate) fn program_and_arguments(line: &[OsString]) -> Result<(&OsStr, &[OsString])> {
    let missing = "no program is given: expected one such as `cargo xtask run dp-basic -- trace`";
    let (program, args) = line.split_first().context(missing)?;
    Ok((program, args.strip_prefix(&[OsString::from("--")]).unwrap_or(args)))
}

/// Replaces this process with a program; returns only if that fails.
pub(crate) fn become_program(executable: &Path, args: &[OsString]) -> Result<()> {
    let mut program = Command::new(executable);
    command::forget_this_package(&mut program);
    let error = program.args(args).exec();
    Err(error).with_context(|| format!("cannot start {}", executable.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_follows_the_program_is_for_the_program() {
        for (line, expected) in [
            ("dp-basic -- trace --devices 2xcpu", "trace --devices 2xcpu"),
            ("dp-basic trace --help", "trace --help"),
            ("dp-basic -- -- x", "-- x"),
            ("dp-basic", ""),
        ] {
            let words = |line: &str| line.split_whitespace().map(OsString::from).collect();
            let (line, expected): (Vec<_>, Vec<_>) = (words(line), words(expected));
            let (program, args) = program_and_arguments(&line).expect("there is a program");
            assert_eq!((program, args), (OsStr::new("dp-basic"), &expected[..]), "{line:?}");
        }
        assert!(program_and_arguments(&[]).is_err());
    }
}
