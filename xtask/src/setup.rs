//! `cargo xtask setup`: a Python virtual environment for each release of PyTorch, in `.libtorch/`, which holds libtorch
//! from the torch wheel. The other chores call [`ensure()`], which costs nothing once that is complete. An interrupted
//! set-up continues, or starts again if what it left is damaged. Of two at once, the second waits for the first.

mod level;
mod prerequisites;
mod stamp;
mod user;
mod venv;

use crate::prelude::*;
pub(crate) use level::Level;
use std::panic;
pub(crate) use user::version;
use venv::State;
pub(crate) use venv::Venv;

/// `cargo xtask setup`: like [`ensure()`], but also prints a line if there is nothing to do.
pub(crate) fn run(workspace: &Workspace, level: Level) -> Result<()> {
    ensure(workspace, level)?;
    let folder = workspace.libtorch.display();
    match workspace.has_user_libtorch() {
        true => eprintln!("nothing to set up: you have chosen the libtorch in {folder}"),
        false => eprintln!("libtorch {} is ready in {folder}", workspace.release.torch),
    }
    Ok(())
}

/// Completes the set-up if necessary. A libtorch of the user's is only checked.
pub(crate) fn ensure(workspace: &Workspace, level: Level) -> Result<()> {
    if workspace.has_user_libtorch() {
        return user::check(&workspace.libtorch, workspace.release);
    }
    let venv = Venv::of(workspace);
    // Nothing runs Python of another kind of machine.
    let level = if venv.is_for_arm { Level::Minimal } else { level };
    if is_stamped(&venv, level) {
        return Ok(());
    }
    let lock = Lock::take(&venv.folder)?;
    // Whoever held the lock may have done the work.
    if is_stamped(&venv, level) { Ok(()) } else { complete(&venv, level, &lock) }
}

/// Like [`ensure()`]. If there is anything to do, it also builds meanwhile what needs no libtorch.
pub(crate) fn ensure_while_building(
    workspace: &Workspace,
    level: Level,
    build: &mut Command,
) -> Result<()> {
    let venv = Venv::of(workspace);
    if workspace.has_user_libtorch() || is_stamped(&venv, level) {
        return ensure(workspace, level);
    }
    thread::scope(|scope| {
        let built = scope.spawn(|| command::run_quietly(build));
        let done = ensure(workspace, level);
        built.join().unwrap_or_else(|panic| panic::resume_unwind(panic)).and(done)
    })
}

/// The full set-up, for the chores that run Python beside Rust, which need its own libtorch.
pub(crate) fn ensure_python(workspace: &Workspace) -> Result<Venv> {
    anyhow::ensure!(
        !workspace.has_user_libtorch(),
        "LIBTORCH or LIBTORCH_USE_PYTORCH is set: unset it, so that Rust and Python both use the libtorch of the set-up"
    );
    ensure(workspace, Level::Full)?;
    Ok(Venv::of(workspace))
}

/// The quick check at every run: there is a stamp that covers the level, and the most important files still exist.
fn is_stamped(venv: &Venv, level: Level) -> bool {
    stamp::read(venv).is_some_and(|done| done >= level)
        && venv.libtorch().join("lib/libtorch_cpu.so").exists()
        && venv.executable("python").exists()
}

fn complete(venv: &Venv, level: Level, lock: &Lock) -> Result<()> {
    stamp::remove(venv)?;
    venv.remove_downloads()?;
    let state = venv.inspect(level);
    if state == State::Complete {
        eprintln!("{} is complete already", venv.folder.display());
    } else {
        prerequisites::check(venv, level)?;
        let does = if state == State::Incomplete { "completing" } else { "setting up" };
        let (torch, folder) = (venv.release.torch, venv.folder.display());
        eprintln!("{does} libtorch {torch} in {folder}: at most {}", level.says());
        if let State::Broken(reason) = &state {
            venv.make_anew(lock, reason)?;
        }
        venv.install(level, lock)?;
        match venv.inspect(level) {
            State::Complete => {}
            State::Incomplete => bail!("the set-up ended, but packages are missing"),
            State::Broken(reason) => bail!("the set-up ended, but {reason}"),
        }
    }
    venv.link_libtorch()?;
    stamp::write(venv, level)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_without_the_files_counts_for_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let library = folder.path().join("torch/lib/libtorch_cpu.so");
        write(&folder.path().join("bin/python"), "").unwrap();
        write(&library, "").unwrap();
        let folder = folder.path().to_owned();
        let venv = Venv { folder, release: Release::DEFAULT, is_for_arm: false };
        let stamped = || [Level::Minimal, Level::Full].map(|level| is_stamped(&venv, level));
        assert_eq!(stamped(), [false, false]);
        stamp::write(&venv, Level::Minimal).unwrap();
        assert_eq!(stamped(), [true, false]);
        stamp::write(&venv, Level::Full).unwrap();
        assert_eq!(stamped(), [true, true]);
        remove(&library).unwrap();
        assert_eq!(stamped(), [false, false]);
    }
}
