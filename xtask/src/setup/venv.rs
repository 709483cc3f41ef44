//! The Python virtual environment of the set-up: checking it, creating it and installing packages.

use super::Level;
use crate::{lock, prelude::*};

/// What the wheels for ARM are named after.
const ARM_PLATFORMS: [&str; 3] =
    ["manylinux_2_28_aarch64", "manylinux_2_25_aarch64", "manylinux_2_17_aarch64"];

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// All of the level's packages are installed completely.
    Complete,
    /// Packages are missing; pip can add them.
    Incomplete,
    /// The environment must be made again from scratch, for this reason.
    Broken(String),
}

/// The environment in a folder, whether or not it has been made.
pub(crate) struct Venv {
    pub(super) folder: PathBuf,
    /// The release of PyTorch that belongs in it.
    pub(super) release: &'static Release,
    /// Whether the packages are those for [`ARM`](crate::workspace::ARM), and its Python only installs them.
    pub(super) is_for_arm: bool,
}

impl Venv {
    pub(super) fn of(workspace: &Workspace) -> Self {
        let Workspace { release, is_for_arm, .. } = *workspace;
        Venv { folder: workspace.venv(), release, is_for_arm }
    }

    pub(super) fn libtorch(&self) -> PathBuf {
        self.folder.join("torch")
    }

    pub(crate) fn executable(&self, name: &str) -> PathBuf {
        self.folder.join("bin").join(name)
    }

    /// Looks at every file of every package, which takes a second or two.
    pub(super) fn inspect(&self, level: Level) -> State {
        if !self.executable("python").exists() {
            return State::Broken("there is no virtual environment".to_owned());
        }
        let pip = command::output(self.python().args(["-m", "pip", "--version"]));
        if !pip.is_ok_and(|said| said.starts_with("pip ")) {
            return State::Broken("it has no pip".to_owned());
        }
        if self.is_for_arm {
            // Which pip can install, but not look at.
            let is_there = self.packages().join("torch/lib/libtorch_cpu.so").exists();
            return if is_there { State::Complete } else { State::Incomplete };
        }
        let mut inspection = self.python();
        inspection.args(["-c", include_str!("installed.py")]);
        inspection.args(level.requirements(self.release));
        let Ok(faults) = command::output(&mut inspection) else {
            return State::Broken("its Python does not run".to_owned());
        };
        if let Some(damage) = faults.lines().find(|fault| fault.starts_with("damaged")) {
            return State::Broken(damage.to_owned());
        }
        // The packages' own dependencies are checked by pip, which understands markers and version ranges.
        let whole = level == Level::Minimal
            || command::output(self.python().args(["-m", "pip", "check"])).is_ok();
        if faults.is_empty() && whole { State::Complete } else { State::Incomplete }
    }

    /// Replaces what is in the folder by an empty environment, for this reason.
    pub(super) fn make_anew(&self, lock: &Lock, reason: &str) -> Result<()> {
        let mut remains = entries(&self.folder)?;
        remains.retain(|path| !path.ends_with(lock::FILE));
        if !remains.is_empty() {
            eprintln!("removing what is in {}: {reason}", self.folder.display());
        }
        remains.iter().try_for_each(|path| remove(path))?;
        let mut python = Command::new("python3");
        python.args(["-m", "venv"]).arg(&self.folder);
        command::run(python.stdin(lock.as_stdin()?).stdout(io::stderr()))
    }

    fn pip_install(&self, lock: &Lock) -> Result<Command> {
        let mut pip = self.python();
        // Python compiles what it imports; all of it would take as long as the rest of the installation.
        pip.args(["-m", "pip", "--disable-pip-version-check", "install", "--no-compile"]);
        // Not on the standard output, which belongs to the program that `cargo launch` will start.
        pip.stdin(lock.as_stdin()?).stdout(io::stderr());
        Ok(pip)
    }

    pub(super) fn install(&self, level: Level, lock: &Lock) -> Result<()> {
        // Python 3.11's own takes 1.5 times as long to install the packages. If there is no newer one, it stays.
        command::run(self.pip_install(lock)?.args(["--upgrade", "pip"]))?;
        let mut pip = self.pip_install(lock)?;
        pip.args((level == Level::Minimal).then_some("--no-deps"));
        if self.is_for_arm {
            // What is left of an interrupted one would be kept.
            remove(&self.packages())?;
            pip.args(["--only-binary=:all:", "--target"]).arg(self.packages());
            pip.args(ARM_PLATFORMS.map(|platform| format!("--platform={platform}")));
        }
        pip.args(level.requirements(self.release));
        let downloads = self.downloads();
        make(&downloads)?;
        let installed = command::run(pip.env("TMPDIR", &downloads));
        self.remove_downloads()?;
        installed
    }

    /// Removes the downloads of a set-up that was killed; otherwise pip removes them itself.
    pub(super) fn remove_downloads(&self) -> Result<()> {
        remove(&self.downloads())
    }

    /// Where pip keeps downloaded files until they are unpacked. Not /tmp, where they might be left behind, or not fit.
    fn downloads(&self) -> PathBuf {
        self.folder.join(".downloads")
    }

    /// Where pip installs what is for another kind of machine.
    fn packages(&self) -> PathBuf {
        self.folder.join("packages")
    }

    /// Links to torch under a path without Python's version, relatively, so that the workspace can be moved.
    pub(super) fn link_libtorch(&self) -> Result<()> {
        let where_it_is = "import sysconfig; print(sysconfig.get_path('platlib'))";
        let packages = match self.is_for_arm {
            true => self.packages(),
            false => command::output(self.python().args(["-c", where_it_is]))?.trim().into(),
        };
        let torch = packages.join("torch");
        let target = torch.strip_prefix(&self.folder).unwrap_or(&torch);
        let link = self.libtorch();
        if fs::read_link(&link).is_ok_and(|found| found == target) {
            return Ok(());
        }
        remove(&link)?;
        symlink(target, &link).with_context(|| format!("cannot create {}", link.display()))
    }

    /// The environment's Python, which ignores PYTHONPATH and the user's own packages.
    fn python(&self) -> Command {
        let mut python = Command::new(self.executable("python"));
        python.arg("-I").stdin(Stdio::null());
        python
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Installs an empty package; if not to the end, it is left as a killed pip would leave it.
    fn install(packages: &Path, requirement: &str, to_the_end: bool) {
        let (name, version) = requirement.split_once("==").unwrap();
        let information = packages.join(format!("{}-{version}.dist-info", name.replace('-', "_")));
        let folder = information.file_name().unwrap().to_string_lossy();
        let metadata = format!("Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n");
        let end = if to_the_end { format!("{folder}/INSTALLER,,\n") } else { String::new() };
        let file = |name: &str, text: &str| write(&information.join(name), text).unwrap();
        file("METADATA", &metadata);
        file("INSTALLER", "pip\n");
        file("RECORD", &format!("{folder}/METADATA,,\n{end}"));
    }

    #[test]
    fn an_environment_between_two_releases_is_not_complete() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().to_owned();
        let venv = Venv { folder: path, release: Release::DEFAULT, is_for_arm: false };
        let lock = Lock::take(folder.path()).unwrap();
        venv.make_anew(&lock, "it is tested").unwrap();
        let packages = entries(&folder.path().join("lib")).unwrap()[0].join("site-packages");
        let requirements = Level::Minimal.requirements(Release::DEFAULT);
        requirements.iter().for_each(|requirement| install(&packages, requirement, true));
        assert_eq!(venv.inspect(Level::Minimal), State::Complete);
        let torch = packages.join(format!("torch-{}.dist-info", Release::DEFAULT.torch));
        remove(&torch).unwrap();
        assert_eq!(venv.inspect(Level::Minimal), State::Incomplete);
        install(&packages, &requirements[0], false);
        let reason = "damaged torch: its installation did not end";
        assert_eq!(venv.inspect(Level::Minimal), State::Broken(reason.to_owned()));
        remove(&torch).unwrap();
        install(&packages, "torch==2.11.0", true);
        assert_eq!(venv.inspect(Level::Minimal), State::Incomplete);
    }
}
