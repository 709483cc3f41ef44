//! Where the checkout is, and what was built from it.

use anyhow::{Context, Result};
use std::{env, path::Path, path::PathBuf};

/// The folder of this workspace's Cargo.toml.
pub(crate) fn checkout() -> &'static Path {
    let xtask = Path::new(env!("CARGO_MANIFEST_DIR"));
    xtask.parent().unwrap_or(xtask)
}

/// The target folder, wherever it is set to be: that of this executable, which is in its subfolder for the profile.
pub(crate) fn target_dir() -> Result<PathBuf> {
    let executable = env::current_exe().context("cannot find the path of this executable")?;
    let target = executable.parent().and_then(Path::parent).map(Path::to_path_buf);
    target.with_context(|| format!("{} is not in a target folder", executable.display()))
}
