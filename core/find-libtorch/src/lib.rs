//! For build scripts: finds libtorch, and links programs against it.
//!
//! Looks for libtorch in the same places as torch-sys.

use std::{env, fs, io, ops::RangeInclusive, path::Path, path::PathBuf, process::Command};

/// The releases of libtorch 2 that c10d-sys compiles against.
const MINOR: RangeInclusive<u32> = 11..=13;

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
    /// The libtorch of the Python on the PATH if LIBTORCH_USE_PYTORCH is set, else the folder LIBTORCH, else the one that
    /// torch-sys has found or downloaded (if the build script's crate depends on it), else /usr.
    ///
    /// # Errors
    /// If libtorch is missing or is not 2.11, 2.12 or 2.13; the error says what to do.
    pub fn find() -> io::Result<Self> {
        let of_torch_sys =
            || PathBuf::from(env::var_os("DEP_TCH_LIBTORCH_LIB")?).parent().map(Into::into);
        let uses_python = variable("LIBTORCH_USE_PYTORCH").is_some();
        let folder = match uses_python {
            true => folder_of_python()?,
            false => variable("LIBTORCH").or_else(of_torch_sys).unwrap_or_else(|| "/usr".into()),
        };
        let below = |name| variable(name).filter(|_| !uses_python).unwrap_or(folder.clone());
        let include = below("LIBTORCH_INCLUDE").join("include");
        let header = include.join("torch/csrc/api/include/torch/torch.h");
        if !header.exists() {
            return Err(io::Error::other(format!(
                "libtorch is not set up: run `cargo xtask setup` in the repository of tch-parallel; elsewhere, run \
                 `pip install torch==2.{}.0` and set LIBTORCH_USE_PYTORCH=1, or set LIBTORCH to a folder of libtorch that holds \
                 include/ and lib/, or enable the feature download-libtorch of tch-parallel ({} is not there)",
                MINOR.end(),
                header.display()
            )));
        }
        check_release(&include)?;
        Ok(Self { include, lib: below("LIBTORCH_LIB").join("lib") })
    }
}

fn folder_of_python() -> io::Result<PathBuf> {
    let python = if env::var_os("VIRTUAL_ENV").is_some() { "python" } else { "python3" };
    let said = Command::new(python).args(["-c", TORCH_FOLDER]).output();
    let refused = |reason: &str| {
        io::Error::other(format!(
            "LIBTORCH_USE_PYTORCH is set, but `{python}` cannot import torch: {reason}; install PyTorch there, or unset \
             LIBTORCH_USE_PYTORCH and set LIBTORCH to a folder of libtorch"
        ))
    };
    let said = said.map_err(|error| refused(&error.to_string()))?;
    if !said.status.success() {
        let complaint = String::from_utf8_lossy(&said.stderr);
        return Err(refused(complaint.trim().lines().last().unwrap_or("it does not say why")));
    }
    Ok(PathBuf::from(String::from_utf8_lossy(&said.stdout).trim()))
}

/// Other releases would not compile, or would misbehave: c10d's C++ functions change between releases
/// without a deprecation.
fn check_release(include: &Path) -> io::Result<()> {
    let header = include.join("torch/headeronly/version.h");
    println!("cargo::rerun-if-changed={}", header.display());
    let text = fs::read_to_string(&header).unwrap_or_default();
    let number = |name| {
        let value = text.split_once(&format!("#define TORCH_VERSION_{name} "))?.1;
        value.split_whitespace().next()?.parse::<u32>().ok()
    };
    let found = match (number("MAJOR"), number("MINOR")) {
        (Some(2), Some(minor)) if MINOR.contains(&minor) => return Ok(()),
        (Some(major), Some(minor)) => format!("{major}.{minor}"),
        _ => "of an unknown release".into(),
    };
    Err(io::Error::other(format!(
        "the libtorch in {} is {found}, but tch-parallel is made for 2.{} to 2.{}: install one of these, and set LIBTORCH to \
         its folder or LIBTORCH_USE_PYTORCH=1 (2.11 goes with tch 0.24, 2.12 and 2.13 with tch 0.26, and no tch compiles with 2.14 or 2.15)",
        include.parent().unwrap_or(include).display(),
        MINOR.start(),
        MINOR.end()
    )))
}

/// Reads an environment variable, and has cargo rebuild when it changes.
pub fn variable(name: &str) -> Option<PathBuf> {
    println!("cargo::rerun-if-env-changed={name}");
    env::var_os(name).map(PathBuf::from)
}

/// Call this from the build script of a program that depends on tch-parallel, so that the program finds libtorch when
/// it starts, without LD_LIBRARY_PATH. Only a program's own build script can set its rpath. From then on cargo runs the
/// script again only if it or Cargo.toml changes, or a file that the script names with `cargo::rerun-if-changed`.
pub fn link_program() {
    // Not the script, which may be that of another program, and which cargo watches anyway.
    println!("cargo::rerun-if-changed=Cargo.toml");
    link("DEP_TCH_PARALLEL_LINK_ARGS");
}

/// Passes the linker arguments that a dependency's build script found, and that cargo hands over in
/// `variable`, on to the linker.
pub fn link(variable: &str) {
    let args = env::var(variable).unwrap_or_default();
    for arg in args.split('\x1f').filter(|arg| !arg.is_empty()) {
        println!("cargo::rustc-link-arg={arg}");
    }
}
