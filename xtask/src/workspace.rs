//! What is built from the checkout with one release of PyTorch, and where its libtorch is.

mod twin;

use crate::checkout::{checkout, target_dir};
use crate::{command, release::Release};
use anyhow::{Context, Result};
use std::{env, path::Path, path::PathBuf, process::Command};

/// Servers with Graviton or Grace, and Macs' containers.
pub(crate) const ARM: &str = "aarch64-unknown-linux-gnu";

pub(crate) struct Workspace {
    /// The checkout, or its twin with another tch in its Cargo.lock.
    root: PathBuf,
    pub(crate) target: PathBuf,
    pub(crate) release: &'static Release,
    /// The folder of libtorch: the user's, or the set-up's.
    pub(crate) libtorch: PathBuf,
    /// Whether it is built for [`ARM`], on another kind of machine.
    pub(crate) is_for_arm: bool,
}

impl Workspace {
    /// The checkout for the default release, and for another a twin in the target folder, with a target of its own.
    pub(crate) fn of(release: &'static Release) -> Result<Self> {
        let libtorch = user_libtorch(release)?.unwrap_or_else(|| libtorch(release));
        let target = target_dir()?;
        if release == Release::DEFAULT {
            let root = checkout().to_owned();
            return Ok(Self { root, target, release, libtorch, is_for_arm: false });
        }
        let root = target.join(format!("torch-{}", release.torch));
        twin::make(&root, release.tch)?;
        Ok(Self { target: root.join("target"), root, release, libtorch, is_for_arm: false })
    }

    /// The same, built for [`ARM`].
    pub(crate) fn for_arm(mut self) -> Self {
        let is_users = self.has_user_libtorch();
        self.is_for_arm = true;
        if !is_users {
            self.libtorch = self.venv().join("torch");
        }
        self
    }

    /// The folder of the set-up: a Python virtual environment with libtorch.
    pub(crate) fn venv(&self) -> PathBuf {
        let venv = venv(self.release);
        if self.is_for_arm {
            return venv.with_file_name(format!("{}-{ARM}", self.release.torch));
        }
        venv
    }

    /// cargo, for what needs libtorch.
    pub(crate) fn cargo(&self) -> Command {
        let mut cargo = command::cargo(&self.root);
        cargo.env("LIBTORCH", &self.libtorch).env_remove("LIBTORCH_USE_PYTORCH");
        if self.root != checkout() {
            cargo.env("CARGO_TARGET_DIR", &self.target);
        }
        if self.is_for_arm {
            cargo.env("CARGO_BUILD_TARGET", ARM);
            cargo.env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", "aarch64-linux-gnu-gcc");
        }
        cargo
    }

    /// Where `cargo build --release` puts the executable of the program `name`.
    pub(crate) fn release_executable(&self, name: impl AsRef<Path>) -> PathBuf {
        self.target.join("release").join(name)
    }

    pub(crate) fn has_user_libtorch(&self) -> bool {
        self.libtorch != self.venv().join("torch")
    }
}

/// The libtorch that the user has chosen. Without a choice, cargo sets LIBTORCH to that of the default release.
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

fn venv(release: &Release) -> PathBuf {
    checkout().join(".libtorch").join(release.torch)
}

fn libtorch(release: &Release) -> PathBuf {
    venv(release).join("torch")
}
