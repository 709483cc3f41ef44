//! What is built from the checkout with one release of PyTorch, and where its libtorch is.

mod twin;

use crate::checkout::{checkout, target_dir};
use crate::command;
use crate::release::Release;
use anyhow::{Context, Result};
use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

pub(crate) struct Workspace {
    /// The checkout, or its twin with another tch in its Cargo.lock.
    root: PathBuf,
    pub(crate) target: PathBuf,
    pub(crate) release: &'static Release,
    /// The folder of libtorch: the user's, or the set-up's.
    pub(crate) libtorch: PathBuf,
}

impl Workspace {
    /// The checkout for the default release. For another one a twin of it in the target folder, with
    /// a target folder of its own.
    pub(crate) fn of(release: &'static Release) -> Result<Self> {
        let libtorch = user_libtorch(release)?.unwrap_or_else(|| libtorch(release));
        let target = target_dir()?;
        if release == Release::DEFAULT {
            return Ok(Self { root: checkout().to_owned(), target, release, libtorch });
        }
        let root = target.join(format!("torch-{}", release.torch));
        twin::make(&root, release.tch)?;
        Ok(Self { target: root.join("target"), root, release, libtorch })
    }

    /// cargo, for what needs libtorch.
    pub(crate) fn cargo(&self) -> Command {
        let mut cargo = command::cargo(&self.root);
        cargo.env("LIBTORCH", &self.libtorch).env_remove("LIBTORCH_USE_PYTORCH");
        if self.root != checkout() {
            cargo.env("CARGO_TARGET_DIR", &self.target);
        }
        cargo
    }

    /// Where `cargo build --release` puts the executable of the program `name`.
    pub(crate) fn release_executable(&self, name: impl AsRef<Path>) -> PathBuf {
        self.target.join("release").join(name)
    }

    pub(crate) fn has_user_libtorch(&self) -> bool {
        self.libtorch != libtorch(self.release)
    }
}

/// The libtorch that the user has chosen, by the variables that torch-sys knows. Without a choice,
/// cargo sets LIBTORCH to that of the default release.
fn user_libtorch(release: &Release) -> Result<Option<PathBuf>> {
    if env::var_os("LIBTORCH_USE_PYTORCH").is_some() {
        let python = if env::var_os("VIRTUAL_ENV").is_some() { "python" } else { "python3" };
        let folder = "import os, torch; print(os.path.dirname(torch.__file__))";
        let folder = command::output(Command::new(python).args(["-c", folder]))
            .context("LIBTORCH_USE_PYTORCH is set, but PyTorch is not there: install it, or unset the variable")?;
        return Ok(Some(folder.trim().into()));
    }
    let set = env::var_os("LIBTORCH").map(PathBuf::from);
    Ok(set.filter(|set| ![release, Release::DEFAULT].map(libtorch).contains(set)))
}

/// The folder of a release's set-up: a Python virtual environment with libtorch.
pub(crate) fn venv(release: &Release) -> PathBuf {
    checkout().join(".libtorch").join(release.torch)
}

fn libtorch(release: &Release) -> PathBuf {
    venv(release).join("torch")
}
