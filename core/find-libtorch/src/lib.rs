//! For build scripts: finds libtorch, and links programs against it.
//!
//! Looks for libtorch in the same places as torch-sys.

use std::env;
use std::io;
use std::path::PathBuf;
use std::process::Command;

/// Prints the folder of PyTorch, which holds include/ and lib/.
const TORCH_FOLDER: &str = "import os, torch; print(os.path.dirname(torch.__file__))";

/// The folders of libtorch's headers and libraries.
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
    /// If libtorch is not there; the error says how to set it up.
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

/// Reads an environment variable, and has cargo rebuild when it changes.
pub fn variable(name: &str) -> Option<PathBuf> {
    println!("cargo::rerun-if-env-changed={name}");
    env::var_os(name).map(PathBuf::from)
}

/// Call this from the build script of a program that depends on tch-parallel, so that the program
/// finds libtorch when it starts, without LD_LIBRARY_PATH. Only a program's own build script can
/// set its rpath.
pub fn link_program() {
    link("DEP_TCH_PARALLEL_LINK_ARGS");
}

/// Passes the linker arguments that a dependency's build script found, and that cargo hands over in
/// `variable`, on to the linker.
pub fn link(variable: &str) {
    for arg in env::var(variable).unwrap_or_default().split_whitespace() {
        println!("cargo::rustc-link-arg={arg}");
    }
}
