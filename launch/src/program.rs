//! Looks up the program before any rank starts, so that a typo is reported once.

use crate::prelude::*;
use nix::unistd::{AccessFlags, access};
use std::ffi::{OsStr, OsString};

/// The file of a program. Refuses one that cannot be executed, and says why.
pub(crate) fn find(program: &OsStr) -> Result<PathBuf> {
    ensure!(
        !program.is_empty(),
        "the program's name is empty: expected a program, as in launch -n 2 ./my-trainer"
    );
    let candidates = candidates(program);
    if let Some(path) = candidates.iter().find(|path| is_executable(path)) {
        return Ok(path.clone());
    }
    let name = Path::new(program);
    let reason = match candidates.iter().find(|path| path.exists()) {
        Some(path) if path.is_dir() => "it is a directory",
        Some(_) => "it is not executable",
        None if has_slash(program) => "No such file or directory",
        None => "no such program in PATH",
    };
    let hint = if name.extension() == Some(OsStr::new("py")) {
        format!(" (to run a Python script: python3 {})", name.display())
    } else if !has_slash(program) && is_executable(name) {
        format!(" (did you mean ./{}?)", name.display())
    } else {
        String::new()
    };
    bail!("cannot start {}: {reason}{hint}", name.display())
}

/// The paths at which exec looks for a program.
fn candidates(program: &OsStr) -> Vec<PathBuf> {
    if has_slash(program) {
        return vec![program.into()];
    }
    let path = std::env::var_os("PATH").unwrap_or_else(|| OsString::from("/bin:/usr/bin"));
    std::env::split_paths(&path).map(|dir| dir.join(program)).collect()
}

fn has_slash(program: &OsStr) -> bool {
    program.as_encoded_bytes().contains(&b'/')
}

fn is_executable(path: &Path) -> bool {
    path.is_file() && access(path, AccessFlags::X_OK).is_ok()
}
