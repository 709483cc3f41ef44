//! The examination on a GPU, packed as for another machine: without a GPU its programs and scripts get
//! as far as their first call of CUDA, with nothing but PyTorch installed.

use crate::prelude::*;

/// Packages that PyTorch does not require, and the GPU's machine may lack.
const ABSENT: [&str; 4] = ["numpy", "safetensors", "torchvision", "PIL"];

/// Fills a folder with PyTorch and what it requires, and returns a Python that has no packages itself.
fn install_only_pytorch(packages: &Path) -> Result<PathBuf> {
    let script = python("machine", [])?;
    let in_venv = Path::new(script.get_program());
    let venv = in_venv.parent().and_then(Path::parent).context("it is in bin")?;
    let interpreter = in_venv.canonicalize()?;
    let version = interpreter.file_name().context("python3.11")?.to_string_lossy().into_owned();
    let installed = venv.join("lib").join(version).join("site-packages");
    fs::create_dir(packages)?;
    for entry in fs::read_dir(&installed)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if !ABSENT.iter().any(|absent| name.starts_with(absent)) {
            symlink(installed.join(&name), packages.join(&name))?;
        }
    }
    Ok(interpreter)
}

#[test]
fn every_part_starts_with_pytorch_alone_and_ends_at_its_first_call_of_cuda() -> Result<()> {
    let job = Job::done(program("xtask", ["gpu", "pack", "--cpu", "--to", "pack"])?)?;
    let [pack, packages] = ["pack", "packages"].map(|name| job.path(name));
    let interpreter = install_only_pytorch(&packages)?;
    let examination = |flags: &[&str]| {
        let mut command = Command::new(&interpreter);
        command.arg(pack.join("run")).args(flags);
        // Without a PATH there is no cargo either.
        command.env_clear().env("PYTHONPATH", &packages).env("PYTHONDONTWRITEBYTECODE", "1");
        command
    };
    let said = "packed for the CPU, for --dry alone";
    job.run(examination(&[]))?.expect_code(2)?.expect_messages(&[said])?;
    let page = job.run(examination(&["--dry"]))?.expect_success()?.stdout;
    assert_eq!(job.text("examination.txt")?, page);

    let parts = page.lines().filter(|line| line.starts_with("  "));
    let (passed, others): (Vec<_>, Vec<_>) = parts.partition(|line| line.starts_with("  passed"));
    ensure!(passed.len() > 15, "only {} parts passed:\n{page}", passed.len());
    // The rest are ResNets, which are torchvision's.
    ensure!(!others.is_empty(), "torchvision is there:\n{page}");
    ensure!(others.iter().all(|part| part.contains("requires torchvision")), "{others:?}");
    Ok(())
}

#[test]
fn a_difference_of_one_bit_fails_a_part_of_the_examination() -> Result<()> {
    let mut python = Command::new("python3");
    python.arg(workspace().join("tests/data/gpu_comparisons.py"));
    python.env("PYTHONPATH", workspace().join("tests/gpu")).env("PYTHONDONTWRITEBYTECODE", "1");
    let expected = "\
        1 of 1 tensors differ, w by 1.19e-07 at most, where the largest number is 1\n\
        only one side saved w\n\
        Rust saved no tensor\n\
        the losses of step 1 are 2 in Rust and 2.00001 in Python\n\
        2 steps in Rust, 1 in Python\n";
    assert_eq!(printed(python)?, expected);
    Ok(())
}
