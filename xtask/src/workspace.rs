//! Paths in the workspace: its root, programs, executables and libtorch. Also whether there is a GPU.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// The folder of the workspace's Cargo.toml.
pub(crate) fn root() -> &'static Path {
    let xtask = Path::new(env!("CARGO_MANIFEST_DIR"));
    xtask.parent().unwrap_or(xtask)
}

/// The target folder, wherever CARGO_TARGET_DIR or a configuration file puts it. Found through this
/// executable, which is in the target folder's subfolder for the profile.
pub(crate) fn target_dir() -> Result<PathBuf> {
    let executable = env::current_exe().context("cannot find the path of this executable")?;
    let target = executable.parent().and_then(Path::parent);
    Ok(target
        .with_context(|| format!("{} is not in a target folder", executable.display()))?
        .to_owned())
}

/// Where `cargo build --release` puts the executable of the program `name`.
pub(crate) fn release_executable(name: &OsStr) -> Result<PathBuf> {
    Ok(target_dir()?.join("release").join(name))
}

/// The folder of the set-up: a Python virtual environment with libtorch.
pub(crate) fn venv() -> PathBuf {
    root().join(".libtorch")
}

/// LIBTORCH, if the user has set it. Otherwise cargo sets it to the set-up's folder (`.cargo/config.toml`).
pub(crate) fn user_libtorch() -> Option<PathBuf> {
    let libtorch = PathBuf::from(env::var_os("LIBTORCH")?);
    (libtorch != venv().join("torch")).then_some(libtorch)
}

/// The manifest of the workspace's program `name`; `None` if there is no such program.
pub(crate) fn program_manifest(name: &OsStr) -> Option<String> {
    let name = name.to_str().filter(|name| !name.contains('/'))?;
    let folder = root().join(name);
    let manifest = fs::read_to_string(folder.join("Cargo.toml")).ok()?;
    let is_program =
        manifest.contains(&format!("\nname = \"{name}\"\n")) && folder.join("src/main.rs").exists();
    is_program.then_some(manifest)
}

/// Whether an NVIDIA GPU is present.
pub(crate) fn has_gpu() -> bool {
    Path::new("/dev/nvidia0").exists()
}

/// Whether NCCL's headers, which the feature `cuda` needs, are where the wheels put them: beside torch.
pub(crate) fn has_nccl_headers(libtorch: &Path) -> bool {
    libtorch.join("../nvidia/nccl/include/nccl.h").exists()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_programs_of_the_workspace_are_found() {
        for program in ["ddp-mnist", "dp-basic", "launch"] {
            assert!(program_manifest(OsStr::new(program)).is_some(), "{program}");
        }
        for other in ["true", "./ddp-mnist", "core", "no-such-program", ""] {
            assert!(program_manifest(OsStr::new(other)).is_none(), "{other}");
        }
    }
}
