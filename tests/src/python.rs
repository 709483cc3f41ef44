//! The Python originals of the programs. They run with the torch that the Rust programs are linked
//! with, because results can only be equal to the last bit if both sides use the same kernels.
//!
//! A job that starts a script of `tests/python`, or torchrun, forks it from a process that has already
//! imported PyTorch (`tests/python/forkserver.py`), because the import takes two seconds. Under a
//! launcher a script is a program like any other.

use crate::programs::{clean, workspace};
use crate::{Shared, prelude::*};
use std::io::{BufRead, BufReader, Write};
use std::process::{ChildStdin, ChildStdout, ExitStatus, Stdio};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::{collections::HashMap, ffi::OsStr, os::unix::process::ExitStatusExt, thread};

const ADVICE: &str = "run `cargo xtask test`, which sets Python up with all that the tests need";

/// PyTorch's launcher, a script next to the interpreter.
const TORCHRUN: &str = "torchrun";

/// `python tests/python/SCRIPT.py ARGUMENTS …`
pub fn python<'a>(script: &str, arguments: impl IntoIterator<Item = &'a str>) -> Result<Command> {
    let mut command = clean(&interpreter()?);
    command.arg(scripts().join(script).with_extension("py")).args(arguments);
    // Otherwise gloo resolves the machine's host name, and may listen on another address than the Rust ranks.
    command.env("GLOO_SOCKET_IFNAME", "lo");
    Ok(command)
}

pub(crate) fn torchrun(flags: &[&str]) -> Result<Command> {
    let mut launcher = clean(&interpreter()?.with_file_name(TORCHRUN));
    launcher.arg("--no-python").args(flags);
    Ok(launcher)
}

fn scripts() -> PathBuf {
    workspace().join("tests/python")
}

/// The Python of the virtual environment that contains libtorch.
fn interpreter() -> Result<Arc<PathBuf>> {
    static PYTHON: Shared<PathBuf> = Shared::new();
    PYTHON.get((), find_interpreter)
}

fn find_interpreter() -> Result<PathBuf> {
    let libtorch = env::var_os("LIBTORCH").map(PathBuf::from);
    let libtorch = libtorch.with_context(|| format!("LIBTORCH is not set; {ADVICE}"))?;
    let real = libtorch
        .canonicalize()
        .with_context(|| format!("no libtorch at {}; {ADVICE}", libtorch.display()))?;
    // …/lib/python3.11/site-packages/torch belongs to …/bin/python.
    real.ancestors()
        .map(|directory| directory.join("bin/python"))
        .find(|python| python.exists())
        .with_context(|| format!("{} lies in no Python environment; {ADVICE}", real.display()))
}

fn environment(command: &Command) -> HashMap<String, String> {
    let mut variables: HashMap<_, _> = env::vars().collect();
    for (name, value) in command.get_envs() {
        let name = name.to_string_lossy().into_owned();
        match value {
            Some(value) => variables.insert(name, value.to_string_lossy().into_owned()),
            None => variables.remove(&name),
        };
    }
    variables
}

/// A process that the server has forked.
#[derive(Debug, Clone)]
pub(crate) struct Forked {
    pid: Pid,
    number: usize,
    /// `NAME=VALUE` …
    pub(crate) environment: Vec<String>,
    answers: Arc<Answers>,
}

impl Forked {
    /// Starts the command's script in the command's directory. None if the command was made neither
    /// by [`python`] nor by [`torchrun`].
    pub(crate) fn start(command: &Command, [stdout, stderr]: [&Path; 2]) -> Result<Option<Self>> {
        let program = Path::new(command.get_program());
        let mut arguments = command.get_args();
        let script = if program.ends_with(TORCHRUN) {
            Some(program)
        } else {
            arguments.next().map(Path::new).filter(|script| script.starts_with(scripts()))
        };
        let Some(script) = script else { return Ok(None) };
        let environment = environment(command);
        let text = |text: &OsStr| text.to_string_lossy().into_owned();
        let request = json!({
            "script": script,
            "arguments": arguments.map(text).collect::<Vec<_>>(),
            "directory": command.get_current_dir(),
            "environment": environment,
            "stdout": stdout,
            "stderr": stderr,
        });
        let environment = environment.iter().map(|(name, value)| format!("{name}={value}"));
        server()?.fork(&request, environment.collect()).map(Some)
    }

    pub(crate) fn pid(&self) -> Pid {
        self.pid
    }

    pub(crate) fn try_wait(&self) -> Option<ExitStatus> {
        self.answers.known().statuses.get(&self.number).copied()
    }
}

/// `tests/python/forkserver.py`, which ends when this test program does.
struct Server {
    /// The server's standard input, and the number of requests so far.
    requests: Mutex<(ChildStdin, usize)>,
    answers: Arc<Answers>,
}

#[derive(Debug, Default)]
struct Answers {
    known: Mutex<Known>,
    news: Condvar,
}

/// The server's answers so far, by the number of the request.
#[derive(Debug, Default)]
struct Known {
    gone: bool,
    pids: HashMap<usize, Pid>,
    statuses: HashMap<usize, ExitStatus>,
}

/// The server, which the first call starts.
fn server() -> Result<Arc<Server>> {
    static SERVER: Shared<Server> = Shared::new();
    SERVER.get((), Server::start)
}

impl Server {
    fn start() -> Result<Self> {
        let mut process = clean(&interpreter()?)
            .arg(scripts().join("forkserver.py"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let (stdin, stdout) = (process.stdin.take(), process.stdout.take());
        let (stdin, stdout) = (stdin.context("no stdin")?, stdout.context("no stdout")?);
        let answers = Arc::new(Answers::default());
        let told = Arc::clone(&answers);
        thread::spawn(move || told.listen(stdout));
        Ok(Self { requests: Mutex::new((stdin, 0)), answers })
    }

    fn fork(&self, request: &Value, environment: Vec<String>) -> Result<Forked> {
        let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        let (stdin, number) = &mut *requests;
        let sent = writeln!(stdin, "{request}");
        let known = self.answers.known();
        let missing = |known: &mut Known| !known.gone && !known.pids.contains_key(number);
        let known = self.answers.news.wait_while(known, missing);
        let known = known.unwrap_or_else(PoisonError::into_inner);
        let pid = known.pids.get(number).copied().filter(|_| sent.is_ok());
        let pid = pid.with_context(|| format!("Python cannot import PyTorch; {ADVICE}"))?;
        let forked =
            Forked { pid, number: *number, environment, answers: Arc::clone(&self.answers) };
        *number += 1;
        Ok(forked)
    }
}

impl Answers {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the server's answers until it ends.
    fn listen(&self, stdout: ChildStdout) {
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            let answer: Value = serde_json::from_str(&line).unwrap_or_default();
            let number = |name: &str| answer[name].as_i64();
            let mut known = self.known();
            if let Some(request) = number("number").and_then(|number| usize::try_from(number).ok())
            {
                if let Some(pid) = number("pid") {
                    known.pids.insert(request, Pid::from_raw(pid as i32));
                }
                if let Some(status) = number("status") {
                    known.statuses.insert(request, ExitStatus::from_raw(status as i32));
                }
            }
            self.news.notify_all();
        }
        self.known().gone = true;
        self.news.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Job;

    #[test]
    fn a_script_that_fails_is_reported_with_its_exit_code_and_its_traceback() {
        let job = Job::new().unwrap();
        let run = |arguments: &[&str]| {
            job.run(python("lr_schedulers", arguments.iter().copied()).unwrap()).unwrap()
        };
        let failed = run(&["many", "SGD", "[0.1]", "{}"]).expect_code(1).unwrap();
        failed.expect_messages(&["Traceback"]).unwrap();
        let schedule = r#"{"StepLR": {"step_size": 1}}"#;
        let rates = run(&["2", "SGD", "[0.5]", schedule]).expect_success().unwrap();
        assert_eq!(rates.stdout, "[[[0.5, 0]], [[0.05, 0]]]\n");
    }

    #[test]
    fn a_script_is_a_member_of_its_job_and_ends_with_it() {
        let job = Job::new().unwrap();
        // It waits for a second rank, which never comes.
        let script = crate::programs::as_rank(python("ddp_mnist", []).unwrap(), 0, 2, 1);
        let mut process = job.start(script).unwrap();
        assert_eq!(job.processes().unwrap(), [process.pid()]);
        drop(job);
        assert!(process.has_ended().unwrap());
    }
}
