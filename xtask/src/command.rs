//! Running other programs. An error names the program that failed.

use crate::checkout::checkout;
use anyhow::{Context, Result, ensure};
use std::{env, path::Path, process::Command, process::Stdio};

/// The cargo that runs this chore, in this folder.
pub(crate) fn cargo(folder: &Path) -> Command {
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    forget_this_package(cargo.current_dir(folder));
    cargo
}

/// Removes the variables that describe this package. Some build scripts watch them, such as ring's: what depends on
/// them would be rebuilt each time that a chore follows a plain `cargo build`.
pub(crate) fn forget_this_package(command: &mut Command) {
    for (name, _) in env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_MANIFEST_") || text.starts_with("CARGO_PKG_") {
            command.env_remove(&name);
        }
    }
}

/// Shows and runs the command.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    eprintln!("+ {}", shown(command));
    run_quietly(command)
}

pub(crate) fn run_quietly(command: &mut Command) -> Result<()> {
    let status = command.status();
    let status = status.with_context(|| format!("cannot start `{}`", program(command)))?;
    ensure!(status.success(), "`{}` ended with {status}", shown(command));
    Ok(())
}

/// The command's stdout. If it fails, the error contains its stderr.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let output = command.stdin(Stdio::null()).output();
    let output = output.with_context(|| format!("cannot start `{}`", program(command)))?;
    let (status, complaint) = (output.status, String::from_utf8_lossy(&output.stderr));
    ensure!(status.success(), "`{}` ended with {status}: {}", shown(command), complaint.trim());
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The command as a user would type it in the workspace root.
fn shown(command: &Command) -> String {
    let args = command.get_args().map(|arg| arg.to_string_lossy().into_owned());
    std::iter::once(program(command)).chain(args).collect::<Vec<_>>().join(" ")
}

fn program(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let name = match program.strip_prefix(checkout()) {
        Ok(inside) => inside.as_os_str(),
        Err(_) => program.file_name().unwrap_or(program.as_os_str()),
    };
    name.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_cargo_does_not_see_this_package() {
        let mut command = Command::new("env");
        forget_this_package(&mut command);
        let seen = output(&mut command).expect("env runs");
        assert!(env::var_os("CARGO_PKG_NAME").is_some(), "cargo test sets it");
        assert!(!seen.contains("CARGO_PKG_") && !seen.contains("CARGO_MANIFEST_"), "{seen}");
    }

    #[test]
    fn a_failure_names_the_command_and_what_it_said() {
        let mut failing = Command::new("sh");
        let error = output(failing.args(["-c", "echo no >&2; exit 3"])).unwrap_err();
        assert_eq!(error.to_string(), "`sh -c echo no >&2; exit 3` ended with exit status: 3: no");
        let error = run_quietly(&mut Command::new("/nowhere/no-such-program")).unwrap_err();
        assert_eq!(error.to_string(), "cannot start `no-such-program`");
    }
}
