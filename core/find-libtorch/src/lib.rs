//! For build scripts: where libtorch lies, and what a program that links it needs.
//!
//! libtorch is looked for where torch-sys looks for it.

use std::env;
use std::io;
use std::path::PathBuf;
use std::process::Command;

/// Prints the folder of PyTorch, which holds include/ and lib/.
const TORCH_FOLDER: &str = "import os, torch; print(os.path.dirname(torch.__file__))";

/// Where libtorch's headers and libraries lie.
#[derive(Debug)]
pub struct Libtorch {
    /// Holds torch/, ATen/, c10/ …
    pub include: PathBuf,
    /// Holds libtorch_cpu.so …
    pub lib: PathBuf,
}

impl Libtorch {
    /// The libtorch of the Python on the PATH if LIBTORCH_USE_PYTORCH is set, else that of LIBTORCH,
    /// else that of the system.
    ///
    /// # Errors
    /// If it is not there; the error says how to set it up.
    pub fn find() -> io::Result<Self> {
        let folder = if variable("LIBTORCH_USE_PYTORCH").is_some() {
            let python = if env::var_os("VIRTUAL_ENV").is_some() { "python" } else { "python3" };
            let said = Command::new(python).args(["-c", TORCH_FOLDER]).output()?.stdout;
            PathBuf::from(String::from_utf8_lossy(&said).trim())
        } else {
            variable("LIBTORCH").unwrap_or_else(|| "/usr".into())
        };
        let below = |name| variable(name).unwrap_or_else(|| folder.clone());
        let include = below("LIBTORCH_INCLUDE").join("include");
        let header = include.join("torch/csrc/api/include/torch/torch.h");
        if header.exists() {
            return Ok(Self { include, lib: below("LIBTORCH_LIB").join("lib") });
        }
        Err(io::Error::other(format!(
            "libtorch is not set up: run `cargo xtask setup`, or set LIBTORCH to a folder of \
             libtorch 2.11.0 that holds include/ and lib/ ({} is not there)",
            header.display()
        )))
    }
}

/// What the environment says, and a new build if it says something else.
pub fn variable(name: &str) -> Option<PathBuf> {
    println!("cargo::rerun-if-env-changed={name}");
    env::var_os(name).map(PathBuf::from)
}

/// To be called by the build script of a program that depends on tch-parallel: the program then finds
/// libtorch when it starts, without LD_LIBRARY_PATH. Only a program's own build script can set its
/// run-time path.
pub fn link_program() {
    link("DEP_TCH_PARALLEL_LINK_ARGS");
}

/// Passes on to the linker what the build script of a dependency has found out and cargo hands over
/// in `variable`.
pub fn link(variable: &str) {
    for arg in env::var(variable).unwrap_or_default().split_whitespace() {
        println!("cargo::rustc-link-arg={arg}");
    }
}
