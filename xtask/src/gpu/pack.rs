//! Building what the examination starts, and putting it into a folder.

use crate::{launch::LAUNCHER, prelude::*, setup, setup::Level};

/// Programs that are called like their packages. The launcher comes with them: `launch`, of the package [`LAUNCHER`].
const PROGRAMS: [&str; 4] = ["async-update", "ddp-imagenet", "ddp-mnist", "dp-custom-criterion"];

/// Examples of these and of the library.
const EXAMPLES: [&str; 5] = ["amp", "mingpt", "models", "optimizers", "sync_batch_norm"];

/// What else the folder holds, at the same places as the checkout.
const FILES: [&str; 3] = ["tests/python", "tests/data/pairs.txt", "core/data/assets/mnist-10k"];

/// The library's crates, whose unit tests the folder holds, sorted by the programs' names.
const TESTED: [&str; 6] = [
    "c10d-sys",
    "tch-parallel-base",
    "tch-parallel-data",
    "tch-parallel-nn",
    "tch-parallel-optim",
    "tch-parallel",
];

/// The file by which such a folder is known: the release of PyTorch, and whether the programs are built with CUDA.
const MARK: &str = "packed.json";

/// Where `run` writes its page if it is started in the folder.
pub(super) const PAGE: &str = "examination.txt";

/// The largest folder that is worth copying to a machine that is lent for minutes. `tar` and `xz` make a third of it.
const LIMIT: u64 = 100 << 20;

/// Builds with the feature `cuda`, in a target folder of its own, and packs. Returns the number of bytes.
pub(super) fn with_cuda(workspace: &Workspace, to: &Path) -> Result<u64> {
    setup::ensure(workspace, Level::Full)?;
    let target = workspace.target.join("cuda");
    let mut build = workspace.cargo();
    build.args(["build", "--release", "--bins", "--features", "cuda"]);
    let packages = PROGRAMS.into_iter().chain([LAUNCHER, "tch-parallel"]);
    build.args(packages.flat_map(|package| ["--package", package]));
    build.args(EXAMPLES.iter().flat_map(|name| ["--example", name]));
    command::run(build.env("CARGO_TARGET_DIR", &target))?;
    let mut files = programs(&target.join("release"));
    files.extend(unit_tests(workspace, &target)?);
    let bytes = pack(workspace, &files, true, to)?;
    ensure!(
        bytes <= LIMIT,
        "{} has {bytes} bytes, but must have at most {LIMIT}: pack fewer programs",
        to.display()
    );
    Ok(bytes)
}

/// Packs the programs as they are. Returns the number of bytes.
pub(super) fn built_for_the_cpu(workspace: &Workspace, to: &Path) -> Result<u64> {
    let files = programs(&workspace.target.join("release"));
    for (from, _) in &files {
        ensure!(from.exists(), "{} is not built; run `cargo xtask test`", from.display());
    }
    pack(workspace, &files, false, to)
}

/// The programs in a folder of cargo's, each with its name.
fn programs(release: &Path) -> Vec<(PathBuf, String)> {
    let programs = PROGRAMS.into_iter().chain(["launch"]);
    let programs = programs.map(|name| (release.join(name), name.into()));
    let examples = EXAMPLES.map(|name| (release.join("examples").join(name), name.into()));
    programs.chain(examples).collect()
}

/// Builds the library's unit tests. Their files are called after what they are built from, and so have to be asked for.
fn unit_tests(workspace: &Workspace, target: &Path) -> Result<Vec<(PathBuf, String)>> {
    let mut build = workspace.cargo();
    build.args(["test", "--release", "--no-run", "--lib"]);
    build.args(TESTED.iter().flat_map(|name| ["--package", name]));
    build.args(["--features", "tch-parallel/cuda"]).env("CARGO_TARGET_DIR", target);
    command::run(&mut build)?;
    let said = command::output(build.arg("--message-format=json"))?;
    let programs: Vec<_> = said.lines().filter_map(executable).collect();
    let mut names: Vec<_> = programs.iter().map(|(_, name)| &**name).collect();
    names.sort_unstable();
    let expected = TESTED.map(|name| format!("{}_tests", name.replace('-', "_")));
    ensure!(names == expected, "cargo built the test programs {names:?}, not {expected:?}");
    Ok(programs)
}

/// A test program that one of cargo's messages names, and the name of its crate with `_tests`.
fn executable(message: &str) -> Option<(PathBuf, String)> {
    let (_, rest) = message.split_once(r#""executable":""#)?;
    let path = PathBuf::from(rest.split_once('"')?.0);
    let (crate_name, _) = path.file_name()?.to_str()?.rsplit_once('-')?;
    let name = format!("{crate_name}_tests");
    Some((path, name))
}

fn pack(
    workspace: &Workspace,
    programs: &[(PathBuf, String)],
    cuda: bool,
    to: &Path,
) -> Result<u64> {
    make_anew(to)?;
    let torch = setup::version(&workspace.libtorch)?;
    write(&to.join(MARK), format!("{{\"torch\": \"{torch}\", \"cuda\": {cuda}}}\n"))?;
    copy(&checkout().join("tests/gpu"), to)?;
    FILES.iter().try_for_each(|path| copy(&checkout().join(path), &to.join(path)))?;
    let bin = to.join("bin");
    make(&bin)?;
    for (from, name) in programs {
        let mut strip = Command::new("strip");
        strip.arg("-o").arg(bin.join(name)).arg(from);
        command::run_quietly(&mut strip).context("install binutils")?;
    }
    size(to)
}

/// An empty folder in place of one that was packed before, whose page is kept. A folder of anything else is refused.
fn make_anew(folder: &Path) -> Result<()> {
    make(folder)?;
    let mut earlier = entries(folder)?;
    earlier.retain(|entry| !entry.ends_with(PAGE));
    ensure!(
        earlier.is_empty() || folder.join(MARK).exists(),
        "{} is not empty, and no earlier pack: choose another folder",
        folder.display()
    );
    // If this is interrupted, the mark is still there.
    earlier.sort_by_key(|entry| entry.ends_with(MARK));
    earlier.iter().try_for_each(|entry| remove(entry))
}

/// Copies a file, or a folder with its contents but for what Python caches there.
fn copy(from: &Path, to: &Path) -> Result<()> {
    if from.is_dir() {
        make(to)?;
        for entry in entries(from)?.into_iter().filter(|entry| !entry.ends_with("__pycache__")) {
            copy(&entry, &to.join(entry.file_name().unwrap_or_default()))?;
        }
        return Ok(());
    }
    make(to.parent().unwrap_or(to))?;
    let copied = fs::copy(from, to).map(drop);
    copied.with_context(|| format!("cannot copy {} to {}", from.display(), to.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_program_is_named_after_its_crate() {
        let built = r#"{"reason":"compiler-artifact","target":{"name":"c10d_sys"},"executable":"/target/deps/c10d_sys-0a1b","fresh":true}"#;
        let found = executable(built);
        assert_eq!(found, Some(("/target/deps/c10d_sys-0a1b".into(), "c10d_sys_tests".into())));
        let library = r#"{"reason":"compiler-artifact","executable":null,"fresh":true}"#;
        assert_eq!(executable(library), None);
    }

    #[test]
    fn only_an_earlier_pack_is_replaced_and_its_page_stays() {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("pack");
        let file = |name: &str| write(&folder.join(name), "12345").unwrap();
        make_anew(&folder).unwrap();
        file("below/one");
        file("two");
        assert_eq!(size(&folder).unwrap(), 10);
        let refused = make_anew(&folder).unwrap_err().to_string();
        assert!(refused.contains("is not empty"), "{refused}");
        file(MARK);
        file(PAGE);
        make_anew(&folder).unwrap();
        assert_eq!(entries(&folder).unwrap(), [folder.join(PAGE)]);
    }
}
