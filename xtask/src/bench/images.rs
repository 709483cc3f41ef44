//! `cargo xtask bench images`: from JPEG files to augmented batches, in Rust and with torchvision.

use super::report::PER_SECOND;
use super::*;

const PACKAGE: &str = "tch-parallel";
const EXAMPLE: &str = "image_pipeline";
const SCRIPT: &str = "xtask/bench/images_torchvision.py";
const MAKER: &str = "xtask/bench/make_jpegs.py";
const BATCH_SIZE: &str = "64";
const IMAGES: u64 = 2000;

pub(super) fn run(workspace: &Workspace, venv: &Venv, rounds: &Rounds) -> Result<()> {
    let folder = workspace.target.join("bench/images");
    let python = venv.executable("python");
    let images = make_images(&python, &folder)?;
    let build = ["build", "--release", "--package", PACKAGE, "--features", "images", "--example"];
    command::run(workspace.cargo().args(build).arg(EXAMPLE))?;

    // Loader threads in Rust, and loader processes in Python.
    let workers = report::cores();
    let measure = |mut program: Command, name: &str| {
        let log = Log::new(folder.join(name))?;
        program.arg(&images).args([&workers.to_string(), BATCH_SIZE]).arg(&log.folder);
        log.run(&mut program)?;
        log.read(0, |lines| job::number(&job::end(lines)?, "images_per_second"))
    };
    let round = || -> Result<[f64; 2]> {
        let rust = Command::new(workspace.release_executable("examples").join(EXAMPLE));
        let mut torchvision = Command::new(&python);
        torchvision.arg(checkout().join(SCRIPT));
        Ok([measure(rust, "rust")?, measure(torchvision, "python")?])
    };
    eprintln!("warming up");
    // It starts with a cold page cache and does not count.
    round()?;
    let [speeds] = rounds.run(|| Ok([round()?]))?;

    let mut table = Table::new(["Rust", "Python"]);
    table.row(&format!("images, {workers} workers"), speeds, PER_SECOND, 2.0);
    print!("{table}");
    println!(
        "Medians of {} alternating rounds. {IMAGES} JPEG files of about 500x375 pixels and {} kB: decoded, RandomResizedCrop(224),\n\
         RandomHorizontalFlip, normalised, batch size {BATCH_SIZE}. Python: torchvision's ImageFolder in a DataLoader.",
        rounds.number,
        size(&images)? / 1000 / IMAGES
    );
    Ok(())
}

/// The folder of images, made if it does not exist yet.
fn make_images(python: &Path, folder: &Path) -> Result<PathBuf> {
    let target = folder.join(format!("{IMAGES}-jpegs"));
    if !target.exists() {
        eprintln!("making {IMAGES} JPEG files in {}", target.display());
        make(folder)?;
        let mut maker = Command::new(python);
        maker.arg(checkout().join(MAKER)).arg("--folder").arg(&target);
        command::run(maker.args(["--images", &IMAGES.to_string()]))?;
    }
    Ok(target)
}
