//! What every test needs: a launcher in a clean environment, a directory for its ranks' notes, and time limits.

use crate::prelude::*;
use std::{borrow::BorrowMut, ffi::OsStr, thread};
use std::{path::Path, path::PathBuf, process::Child, process::Stdio};
use tempfile::{NamedTempFile, TempDir};

/// The longest that a job may take to end after the first failure; one of several nodes may take twice as long.
pub(crate) const WHOLE_END: Duration = Duration::from_secs(5);

/// How long anything may take before its test fails.
const LIMIT: Duration = Duration::from_secs(30);

/// For the shell programs: `note TEXT NAME` leaves a note, complete from the moment it appears; `await NAME` waits for
/// one; `dead NAME` waits for the end of the process whose id a note holds; `stay` runs until a signal comes; `reason
/// TEXT` leaves the reason of a failure as Python does, and `victim TEXT` one that names another rank.
const PRELUDE: &str = r#"
    note() { echo "$1" > "$DIR/.$2" && mv "$DIR/.$2" "$DIR/$2"; }
    await() { while [ ! -e "$DIR/$1" ]; do sleep 0.01; done; }
    dead() { await "$1"; read -r pid <"$DIR/$1"; while [ -e "/proc/$pid" ]; do sleep 0.01; done; }
    stay() { while :; do sleep 0.05; done; }
    message='{"message": {"message": "%s", "extraInfo": {%s"timestamp": "1"}}}'
    reason() { printf "$message" "$1" '"py_callstack": "Traceback ...", ' >"$TORCHELASTIC_ERROR_FILE"; }
    victim() { printf "$message" "$1" '"culprit": "rank 0 has ended", ' >"$TORCHELASTIC_ERROR_FILE"; }
"#;

pub(crate) struct Job(TempDir);

impl Job {
    pub(crate) fn new() -> Self {
        Job(tempfile::tempdir().unwrap())
    }

    pub(crate) fn dir(&self) -> &Path {
        self.0.path()
    }

    /// `launch` with these arguments, which inherits no disposition of signals, as of tests under nohup.
    pub(crate) fn launch<I: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = I>) -> Command {
        let mut command = self.clean("/usr/bin/env");
        command.args(["--default-signal", env!("CARGO_BIN_EXE_launch")]).args(args);
        command
    }

    /// `launch FLAGS sh -c SCRIPT`, with the prelude before the script.
    pub(crate) fn launch_sh(&self, flags: &str, script: &str) -> Command {
        let script = format!("{PRELUDE}{script}");
        self.launch(flags.split_whitespace().chain(["sh", "-c", &script]))
    }

    pub(crate) fn launch_python(&self, flags: &str, script: &str) -> Command {
        self.launch(flags.split_whitespace().chain(["python3", "-c", script]))
    }

    /// Any program in the environment of the tests: nothing of the caller's but PATH and HOME.
    pub(crate) fn clean(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command.env_clear().env("DIR", self.dir()).env("TMPDIR", self.dir());
        let kept = ["PATH", "HOME"].into_iter();
        command.envs(kept.filter_map(|name| Some((name, std::env::var_os(name)?))));
        command
    }

    pub(crate) fn note(&self, name: &str) -> Option<String> {
        Some(fs::read_to_string(self.dir().join(name)).ok()?.trim().to_owned())
    }

    pub(crate) fn leave(&self, name: &str) {
        fs::write(self.dir().join(name), "").unwrap();
    }

    pub(crate) fn wait_for_note(&self, name: &str) -> String {
        wait_for(&format!("the note {name:?}"), || self.note(name))
    }

    pub(crate) fn wait_for_pids(&self, names: &[&str]) -> Vec<i32> {
        names.iter().map(|name| self.wait_for_note(name).parse().unwrap()).collect()
    }

    /// The directory of the logs: the only one in the job's, or in `base` under it.
    pub(crate) fn logs(&self, base: &str) -> PathBuf {
        let paths = fs::read_dir(self.dir().join(base)).unwrap().map(|entry| entry.unwrap().path());
        let dirs: Vec<PathBuf> = paths.filter(|path| path.is_dir()).collect();
        assert_eq!(dirs.len(), 1, "one directory of logs: {dirs:?}");
        dirs[0].clone()
    }
}

#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ended {
    #[track_caller]
    pub(crate) fn expect_code(&self, code: i32) -> &Self {
        assert_eq!(self.code, Some(code), "{self:#?}");
        self
    }

    #[track_caller]
    pub(crate) fn expect_stderr(&self, text: &str) -> &Self {
        assert!(self.stderr.contains(text), "expected {text:?} in {self:#?}");
        self
    }

    #[track_caller]
    pub(crate) fn expect_not_in_stderr(&self, text: &str) -> &Self {
        assert!(!self.stderr.contains(text), "did not expect {text:?} in {self:#?}");
        self
    }
}

/// A launcher that runs. Dropped, it is killed, and its ranks die with it.
pub(crate) struct Running {
    child: Child,
    stdout: NamedTempFile,
    stderr: NamedTempFile,
}

fn read(file: &NamedTempFile) -> String {
    String::from_utf8_lossy(&fs::read(file.path()).unwrap()).into_owned()
}

impl Running {
    pub(crate) fn pid(&self) -> i32 {
        self.child.id().try_into().unwrap()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.pid()), signal).unwrap();
    }

    pub(crate) fn wait_for_stderr(&self, text: &str) {
        wait_until(&format!("{text:?} on stderr"), || read(&self.stderr).contains(text));
    }

    /// Waits until the launcher has ended, though others may still hold its output open.
    pub(crate) fn finish(mut self) -> Ended {
        let status = wait_for("the end of the launcher", || self.child.try_wait().unwrap());
        Ended { code: status.code(), stdout: read(&self.stdout), stderr: read(&self.stderr) }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts a launcher. Its output goes to files, so that it never waits for a reader.
pub(crate) fn start(mut command: impl BorrowMut<Command>) -> Running {
    let [stdout, stderr] = [(); 2].map(|()| NamedTempFile::new().unwrap());
    let command: &mut Command = command.borrow_mut();
    command.stdin(Stdio::null()).stdout(stdout.reopen().unwrap()).stderr(stderr.reopen().unwrap());
    Running { child: command.spawn().unwrap(), stdout, stderr }
}

pub(crate) fn run(command: impl BorrowMut<Command>) -> Ended {
    start(command).finish()
}

#[track_caller]
pub(crate) fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    wait_for(what, || condition().then_some(()));
}

/// Waits until there is such a thing, and returns it.
#[track_caller]
pub(crate) fn wait_for<T>(what: &str, mut find: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = find() {
            return found;
        }
        assert!(start.elapsed() < LIMIT, "waited {LIMIT:?} for {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// The state of a process as in ps: `S`, `T`, `Z` …; `None` when there is no such process.
pub(crate) fn state(pid: i32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

/// The processes that `parent` has started whose command line has this word.
pub(crate) fn children(parent: i32, word: &str) -> Vec<i32> {
    // A launcher starts all of them from its first thread.
    let children = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).unwrap();
    let has_word = |pid: &i32| {
        let words = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        words.split('\0').any(|found| found == word)
    };
    children.split_whitespace().map(|pid| pid.parse().unwrap()).filter(has_word).collect()
}

/// Waits until none of the processes runs. A zombie is dead: its parent may never fetch it.
#[track_caller]
pub(crate) fn wait_until_dead(pids: &[i32]) {
    for pid in pids {
        let is_dead = || matches!(state(*pid), None | Some('Z' | 'X'));
        wait_until(&format!("the end of process {pid}"), is_dead);
    }
}
