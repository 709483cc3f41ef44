//! Processes that a server forks, because loading what they need takes longer than most of them run.

use crate::prelude::*;
use std::io::{BufRead, BufReader, Write};
use std::process::{ChildStdin, ChildStdout, ExitStatus, Stdio};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::{collections::HashMap, os::unix::process::ExitStatusExt, thread};

/// A process that a server has forked.
#[derive(Debug, Clone)]
pub(crate) struct Forked {
    pub(crate) pid: Pid,
    number: usize,
    /// `NAME=VALUE` …
    pub(crate) environment: Vec<String>,
    answers: Arc<Answers>,
}

impl Forked {
    pub(crate) fn try_wait(&self) -> Option<ExitStatus> {
        self.answers.known().statuses.get(&self.number).copied()
    }
}

/// A process that forks others, and ends when this test program does. `tests/python/forkserver.py` describes the
/// requests and the answers.
pub(crate) struct Server {
    /// The server's standard input, and the number of requests so far.
    requests: Mutex<(ChildStdin, usize)>,
    answers: Arc<Answers>,
    /// What is wrong if it does not answer.
    excuse: String,
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

impl Server {
    pub(crate) fn start(mut command: Command, excuse: String) -> Result<Self> {
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let (stdin, stdout) = (process.stdin.take(), process.stdout.take());
        let (stdin, stdout) = (stdin.context("no stdin")?, stdout.context("no stdout")?);
        let answers = Arc::new(Answers::default());
        let told = Arc::clone(&answers);
        thread::spawn(move || told.listen(stdout));
        Ok(Self { requests: Mutex::new((stdin, 0)), answers, excuse })
    }

    /// Starts a script of Python's server, or a test of `fork_server`'s, in the directory and environment of a command.
    pub(crate) fn fork(
        &self,
        script: &str,
        arguments: &[String],
        command: &Command,
        [stdout, stderr]: [&Path; 2],
    ) -> Result<Forked> {
        let environment = environment(command);
        let request = json!({
            "script": script,
            "arguments": arguments,
            "directory": command.get_current_dir(),
            "environment": environment,
            "stdout": stdout,
            "stderr": stderr,
        });
        let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        let (stdin, number) = &mut *requests;
        let sent = writeln!(stdin, "{request}");
        let known = self.answers.known();
        let this = *number;
        *number += 1;
        let missing = |known: &mut Known| {
            let is_answered = known.pids.contains_key(&this) || known.statuses.contains_key(&this);
            !known.gone && !is_answered
        };
        let known = self.answers.news.wait_while(known, missing);
        let known = known.unwrap_or_else(PoisonError::into_inner);
        let pid = known.pids.get(&this).copied().filter(|_| sent.is_ok());
        let pid = pid.with_context(|| self.excuse.clone())?;
        let environment = environment.iter().map(|(name, value)| format!("{name}={value}"));
        let (environment, answers) = (environment.collect(), Arc::clone(&self.answers));
        Ok(Forked { pid, number: this, environment, answers })
    }
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

impl Answers {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the server's answers until it ends.
    fn listen(&self, stdout: ChildStdout) {
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            let answer: Value = serde_json::from_str(&line).unwrap_or_default();
            let Some(request) = answer["number"].as_u64().map(|it| it as usize) else { continue };
            let number = |name: &str| answer[name].as_i64().map(|number| number as i32);
            let mut known = self.known();
            known.pids.extend(number("pid").map(|pid| (request, Pid::from_raw(pid))));
            known.statuses.extend(number("status").map(|it| (request, ExitStatus::from_raw(it))));
            self.news.notify_all();
        }
        self.known().gone = true;
        self.news.notify_all();
    }
}
