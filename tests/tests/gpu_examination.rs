//! The examination on a GPU, packed as for another machine: without a GPU its programs and scripts get
//! as far as their first call of CUDA, with nothing but PyTorch installed.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use tests::programs::xtask;
use tests::{Job, python};

/// Packages that PyTorch does not require, and the GPU's machine may lack.
const ABSENT: [&str; 4] = ["numpy", "safetensors", "torchvision", "PIL"];

/// Python without a virtual environment, and a folder of packages with PyTorch and what it requires.
fn only_pytorch(packages: &Path) -> Result<Command> {
    let script = python("machine", [])?;
    let venv = Path::new(script.get_program());
    let folder = venv.parent().and_then(Path::parent).context("it is in bin")?;
    let interpreter = venv.canonicalize()?;
    let version = interpreter.file_name().context("python3.11")?.to_string_lossy().into_owned();
    fs::create_dir(packages)?;
    let installed = folder.join("lib").join(version).join("site-packages");
    for entry in fs::read_dir(&installed)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if !ABSENT.iter().any(|absent| name.starts_with(absent)) {
            symlink(installed.join(&name), packages.join(&name))?;
        }
    }
    let mut command = Command::new(interpreter);
    // Without a PATH there is no cargo either.
    command.env_clear().env("PYTHONPATH", packages).env("PYTHONDONTWRITEBYTECODE", "1");
    Ok(command)
}

#[test]
fn every_part_starts_with_pytorch_alone_and_ends_at_its_first_call_of_cuda() -> Result<()> {
    let job = Job::new()?;
    let pack = job.directory().join("pack");
    job.run(xtask(["gpu", "pack", "--cpu", "--to", "pack"])?)?.expect_success()?;
    let mut examination = only_pytorch(&job.directory().join("packages"))?;
    examination.arg(pack.join("run")).arg("--dry");
    let page = job.run(examination)?.expect_success()?.stdout;
    assert_eq!(fs::read_to_string(job.directory().join("examination.txt"))?, page);

    let parts: Vec<_> = page.lines().filter(|line| line.starts_with("  ")).collect();
    let passed = parts.iter().filter(|line| line.starts_with("  passed")).count();
    ensure!(passed > 15, "only {passed} parts passed:\n{page}");
    // The rest is ResNet-50, which is torchvision's.
    let others: Vec<_> = parts.iter().filter(|line| !line.starts_with("  passed")).collect();
    ensure!(!others.is_empty(), "torchvision is there:\n{page}");
    for part in others {
        ensure!(part.contains("requires torchvision"), "{part}");
    }
    Ok(())
}

#[test]
fn programs_for_the_cpu_are_refused_by_an_examination_of_a_gpu() -> Result<()> {
    let job = Job::new()?;
    job.run(xtask(["gpu", "pack", "--cpu", "--to", "pack"])?)?.expect_success()?;
    let mut examination = only_pytorch(&job.directory().join("packages"))?;
    examination.arg(job.directory().join("pack/run"));
    job.run(examination)?
        .expect_code(2)?
        .expect_messages(&["for --dry alone: pack without --cpu"])?;
    Ok(())
}
