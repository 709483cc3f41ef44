//! `cargo xtask setup`: a Python virtual environment for each release of PyTorch, in `.libtorch/`, which
//! holds libtorch from the torch wheel.
//!
//! The other chores call [`ensure`], which costs nothing once the set-up is complete. An
//! interrupted set-up continues where it stopped, or starts again if what it left is damaged. If
//! two are started at once, the second waits for the first.

mod level;
mod lock;
mod prerequisites;
mod release;
mod stamp;
mod user;
mod venv;

use std::path::PathBuf;

use anyhow::Result;

pub(crate) use level::Level;
use lock::Lock;
pub(crate) use release::Release;
use venv::{State, Venv};

use crate::workspace::{self, Workspace};

/// `cargo xtask setup`: like [`ensure`], but also prints a line if there is nothing to do.
pub(crate) fn run(workspace: &Workspace, level: Level) -> Result<()> {
    let libtorch = ensure(workspace, level)?;
    let torch = workspace.release.torch;
    match workspace.user_libtorch() {
        Some(_) => eprintln!("nothing to set up: LIBTORCH is set, to {}", libtorch.display()),
        None => eprintln!("libtorch {torch} is ready in {}", libtorch.display()),
    }
    Ok(())
}

/// Completes the set-up if necessary, and returns the folder of libtorch: the user's LIBTORCH, or
/// else the set-up's.
pub(crate) fn ensure(workspace: &Workspace, level: Level) -> Result<PathBuf> {
    let release = workspace.release;
    if let Some(libtorch) = workspace.user_libtorch() {
        user::check(&libtorch, release)?;
        return Ok(libtorch);
    }
    let venv = Venv::new(workspace::venv(release));
    if !is_stamped(&venv, level, release) {
        let lock = Lock::take(venv.folder())?;
        // Whoever held the lock may have done the work.
        if !is_stamped(&venv, level, release) {
            complete(&venv, level, release, &lock)?;
        }
    }
    Ok(venv.libtorch())
}

/// Like [`ensure`], for the chores that run Python beside Rust, which need the set-up's own
/// libtorch.
pub(crate) fn ensure_python(workspace: &Workspace, level: Level) -> Result<Venv> {
    if let Some(libtorch) = workspace.user_libtorch() {
        anyhow::bail!(
            "LIBTORCH is set, to {}: unset it, so that Rust and Python both use the libtorch of the set-up",
            libtorch.display()
        );
    }
    ensure(workspace, level)?;
    Ok(Venv::new(workspace::venv(workspace.release)))
}

/// The quick check at every run: there is a stamp that covers the level, and the most important
/// files still exist.
fn is_stamped(venv: &Venv, level: Level, release: &Release) -> bool {
    stamp::read(venv.folder(), release).is_some_and(|done| done >= level) && venv.looks_usable()
}

fn complete(venv: &Venv, level: Level, release: &Release, lock: &Lock) -> Result<()> {
    stamp::remove(venv.folder())?;
    venv.remove_downloads()?;
    let mut state = venv.inspect(level, release);
    if state == State::Complete {
        eprintln!("{} is complete already", venv.folder().display());
    } else {
        prerequisites::check(venv.folder(), level, release)?;
        let does = if state == State::Incomplete { "completing" } else { "setting up" };
        let (torch, folder) = (release.torch, venv.folder().display());
        eprintln!("{does} libtorch {torch} in {folder}: at most {}", level.says());
    }
    if matches!(state, State::Broken(_)) {
        venv.make_anew(lock, &state)?;
        state = State::Incomplete;
    }
    if state == State::Incomplete {
        venv.install(level, release, lock)?;
        state = venv.inspect(level, release);
    }
    anyhow::ensure!(state == State::Complete, "the set-up ended, but {state}");
    venv.link_libtorch()?;
    stamp::write(venv.folder(), level, release)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_stamp_without_the_files_counts_for_nothing() {
        let folder = std::env::temp_dir().join(format!("xtask-stamp-{}", std::process::id()));
        fs::create_dir_all(folder.join("bin")).expect("a temporary folder");
        fs::create_dir_all(folder.join("torch/lib")).expect("a temporary folder");
        fs::write(folder.join("bin/python"), "").expect("a file");
        fs::write(folder.join("torch/lib/libtorch_cpu.so"), "").expect("a file");
        let venv = Venv::new(folder.clone());
        let stamped = |level| is_stamped(&venv, level, Release::DEFAULT);

        let before = stamped(Level::Minimal);
        stamp::write(&folder, Level::Minimal, Release::DEFAULT).expect("a stamp");
        let minimal = [Level::Minimal, Level::Full].map(stamped);
        stamp::write(&folder, Level::Full, Release::DEFAULT).expect("a stamp");
        let full = [Level::Minimal, Level::Full].map(stamped);
        fs::remove_file(folder.join("torch/lib/libtorch_cpu.so")).expect("the library goes");
        let without_library = stamped(Level::Minimal);
        fs::remove_dir_all(&folder).expect("the folder goes");

        assert!(!before);
        assert_eq!(minimal, [true, false]);
        assert_eq!(full, [true, true]);
        assert!(!without_library);
    }
}
