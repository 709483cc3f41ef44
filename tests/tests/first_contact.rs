//! What a user sees who builds before the set-up.

use crate::prelude::*;
use std::{fs::Permissions, os::unix::fs::PermissionsExt};

/// Builds find-libtorch, on which everything that links libtorch depends.
fn build(job: &Job, variables: &[(&str, &Path)]) -> Result<Ended> {
    let mut cargo = cargo();
    for other in ["VIRTUAL_ENV", "LIBTORCH_INCLUDE", "LIBTORCH_LIB", "LIBTORCH_USE_PYTORCH"] {
        cargo.env_remove(other);
    }
    cargo.envs(variables.iter().copied()).env("CARGO_TARGET_DIR", job.path("target"));
    job.run(cargo.args(["build", "--offline", "-p", "find-libtorch"]))
}

/// A folder that looks like this release of libtorch.
fn libtorch(job: &Job, release: &str) -> Result<PathBuf> {
    let libtorch = job.path(release);
    let [major, minor] = [0, 1].map(|index| release.split('.').nth(index).unwrap_or_default());
    let version =
        format!("#define TORCH_VERSION_MAJOR {major}\n#define TORCH_VERSION_MINOR {minor}\n");
    for (header, text) in
        [("torch/csrc/api/include/torch/torch.h", ""), ("torch/headeronly/version.h", &version)]
    {
        let header = libtorch.join("include").join(header);
        fs::create_dir_all(header.parent().unwrap_or(&header))?;
        fs::write(header, text)?;
    }
    Ok(libtorch)
}

#[test]
fn a_build_without_libtorch_says_how_to_set_it_up() -> Result<()> {
    let job = Job::new()?;
    build(&job, &[("LIBTORCH", &job.path("interrupted/torch"))])?
        .expect_code(101)?
        .expect_line(&["error:", "libtorch is not set up: run `cargo xtask setup`"])
}

/// With other crates compiled, torch-sys may look for libtorch before find-libtorch does.
#[test]
fn a_compiler_that_misses_libtorchs_header_says_how_to_set_it_up() -> Result<()> {
    let job = Job::new()?;
    let source = job.path("includes_torch.cpp");
    fs::write(&source, "#include<torch/torch.h>\n")?;
    let include = job.path("include");
    let compile = || {
        let mut compiler = Command::new("c++");
        job.run(compiler.arg("-fsyntax-only").arg("-I").arg(&include).arg(&source))
    };
    compile()?
        .expect_code(1)?
        .expect_line(&["fatal error:", "libtorch is not set up: run `cargo xtask setup`"])?;
    fs::create_dir_all(include.join("torch"))?;
    fs::write(include.join("torch/torch.h"), "")?;
    compile()?.expect_success().map(drop)
}

#[test]
fn a_build_with_another_release_of_libtorch_says_which_ones_will_do() -> Result<()> {
    let job = Job::new()?;
    for wrong in ["2.10.0", "2.14.0", "3.11.0"] {
        let minor = wrong.trim_end_matches(".0");
        let found =
            format!("{wrong} is {minor}, but tch-parallel is made for 2.11 to 2.13: install");
        build(&job, &[("LIBTORCH", &libtorch(&job, wrong)?)])?
            .expect_code(101)?
            .expect_line(&["error: find-libtorch", &found])?;
    }
    ["2.11.0", "2.12.1", "2.13.0"].into_iter().try_for_each(|right| {
        build(&job, &[("LIBTORCH", &libtorch(&job, right)?)])?.expect_success().map(drop)
    })
}

#[test]
fn a_python_without_pytorch_is_named() -> Result<()> {
    let job = Job::new()?;
    // Python finds nothing to import there, PyTorch or not.
    build(&job, &[("LIBTORCH_USE_PYTORCH", "1".as_ref()), ("PYTHONHOME", job.directory())])?
        .expect_code(101)?
        .expect_line(&["error:", "LIBTORCH_USE_PYTORCH is set, but `python3` cannot import torch"])
}

#[test]
fn the_libtorch_of_a_python_is_used_and_checked() -> Result<()> {
    let build_with_python = |release| -> Result<Ended> {
        let job = Job::new()?;
        let python = job.path("python3");
        fs::write(&python, format!("#!/bin/sh\necho {}\n", libtorch(&job, release)?.display()))?;
        fs::set_permissions(&python, Permissions::from_mode(0o755))?;
        let path = format!("{}:{}", job.directory().display(), env::var("PATH")?);
        build(&job, &[("LIBTORCH_USE_PYTORCH", "1".as_ref()), ("PATH", path.as_ref())])
    };
    build_with_python("2.13.0")?.expect_success()?;
    build_with_python("2.10.0")?
        .expect_code(101)?
        .expect_line(&["error: find-libtorch", "2.10.0 is 2.10, but tch-parallel is made for"])
}
