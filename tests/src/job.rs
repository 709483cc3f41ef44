//! A job: the processes that a test starts, all processes that those start in turn, and a directory for their files.

use crate::wait::{past, until};
use crate::{ended::Ended, fork_server::fork_test, forked::Forked, members::Members, python};
use crate::{prelude::*, safetensors, safetensors::Tensor, training::losses};
use std::process::{Child, ExitStatus, Stdio};
use std::{borrow::BorrowMut, cell::Cell, fs::File};
use tempfile::TempDir;

/// How long killed processes may take to disappear.
const END: Duration = Duration::from_secs(60);

/// Processes with a common directory. They may take as long as they like, as long as they make progress. When the job
/// goes out of scope, all of them are killed, down to the last grandchild, and the directory is removed.
pub struct Job {
    /// Everything that is removed with the job: its directory, its output, and whatever its processes put into TMPDIR.
    root: TempDir,
    directory: PathBuf,
    members: Members,
    started: Cell<usize>,
}

/// One process that a test has started itself; killed and reaped when it goes out of scope.
pub struct Process {
    child: Running,
    command: String,
    stdout: PathBuf,
    stderr: PathBuf,
    members: Members,
}

enum Running {
    Child(Child),
    Forked(Forked),
}

impl Job {
    pub fn new() -> Result<Self> {
        let root = tempfile::tempdir()?;
        let directory = root.path().join("job");
        fs::create_dir(&directory)?;
        let members = Members::new(root.path());
        Ok(Self { root, directory, members, started: Cell::new(0) })
    }

    /// A job whose first program has succeeded.
    pub fn done(program: impl BorrowMut<Command>) -> Result<Self> {
        let job = Self::new()?;
        job.run(program)?.expect_success()?;
        Ok(job)
    }

    /// Where the job's processes run unless they are told otherwise.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// A file in that directory.
    pub fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.directory().join(name)
    }

    pub fn text(&self, name: impl AsRef<Path>) -> Result<String> {
        let path = self.path(name);
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
    }

    pub fn tensors(&self, name: impl AsRef<Path>) -> Result<BTreeMap<String, Tensor>> {
        safetensors::read(&self.path(name))
    }

    /// What each rank has written to its `rankRANK.safetensors`.
    pub fn tensors_by_rank(&self, world_size: usize) -> Result<Vec<BTreeMap<String, Tensor>>> {
        (0..world_size).map(|rank| self.tensors(format!("rank{rank}.safetensors"))).collect()
    }

    /// The names of the files and directories that the processes have left in the job's directory.
    pub fn files(&self) -> Result<Vec<String>> {
        let entries = fs::read_dir(self.directory())?;
        let names = entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
        let mut names = names.collect::<Result<Vec<_>>>()?;
        names.sort();
        Ok(names)
    }

    /// Starts a process. Its output goes to files, so that it never waits for a reader.
    pub fn start(&self, mut command: impl BorrowMut<Command>) -> Result<Process> {
        let command: &mut Command = command.borrow_mut();
        let number = self.started.replace(self.started.get() + 1);
        let stdout = self.root.path().join(format!("{number}.stdout"));
        let stderr = self.root.path().join(format!("{number}.stderr"));
        if command.get_current_dir().is_none() {
            command.current_dir(self.directory());
        }
        self.members.add(command);
        command
            .env("TMPDIR", self.root.path())
            .stdin(Stdio::null())
            .stdout(File::create(&stdout)?)
            .stderr(File::create(&stderr)?);
        let outputs = [&*stdout, &*stderr];
        let forked = match python::fork(command, outputs)? {
            None => fork_test(command, outputs)?,
            python => python,
        };
        let child = if let Some(process) = forked {
            self.members.add_forked(process.clone());
            Running::Forked(process)
        } else {
            Running::Child(command.spawn().with_context(|| format!("cannot start {command:?}"))?)
        };
        let program = command.get_program().to_string_lossy();
        let arguments = command.get_args().map(|argument| argument.to_string_lossy());
        let command = [program].into_iter().chain(arguments).collect::<Vec<_>>().join(" ");
        Ok(Process { child, command, stdout, stderr, members: self.members.clone() })
    }

    pub fn run(&self, command: impl BorrowMut<Command>) -> Result<Ended> {
        self.start(command)?.wait()
    }

    /// Fails unless a program ends with this code, with all of these texts in its messages, before it
    /// takes a step or saves anything.
    pub fn expect_refusal(&self, command: Command, code: i32, texts: &[&str]) -> Result<()> {
        self.refusal(command, code, texts).map(drop)
    }

    fn refusal(&self, command: Command, code: i32, texts: &[&str]) -> Result<Ended> {
        let ended = self.run(command)?.expect_code(code)?;
        let is_model = |it: &String| it == "model.safetensors" || it == "checkpoint.safetensors";
        let saved = self.files()?.into_iter().find(is_model);
        ensure!(saved.is_none(), "it saved {saved:?}: {ended}");
        let steps = losses(self.directory(), 0).map_or(0, |losses| losses.len());
        let begins = ["Epoch=", "Epoch: ", "Training Start"];
        let trained = steps > 0 || begins.iter().any(|text| ended.stdout.contains(text));
        ensure!(!trained, "it trained before it refused: {ended}");
        ended.expect_messages(texts)?;
        Ok(ended)
    }

    /// The processes of the job that are alive: those started by the test and all their descendants.
    pub fn processes(&self) -> Result<Vec<Pid>> {
        self.members.pids()
    }

    /// Waits until `look` finds something, and returns it. If the job stops making progress, fails
    /// with the message that `what` never came.
    pub fn until<T>(&self, what: &str, look: impl FnMut() -> Result<Option<T>>) -> Result<T> {
        until(what, self.members.stand_still(), look)
    }

    /// Waits until a comparison has started a run that has taken a step.
    pub fn wait_for_run(&self) -> Result<()> {
        let metrics = |entry: fs::DirEntry| fs::metadata(entry.path().join("metrics/rank0.jsonl"));
        let begun = |entry| metrics(entry).is_ok_and(|file| file.len() > 0);
        self.until("a run has begun", || {
            Ok(fs::read_dir(self.root.path())?.flatten().any(begun).then_some(()))
        })
    }

    /// Waits until there is a process that runs `program` as this rank.
    pub fn rank(&self, rank: usize, program: &str) -> Result<Pid> {
        self.until(&format!("{program} runs as rank {rank}"), || self.find_rank(rank, program))
    }

    /// The process that runs `program` as this rank, if there is one now.
    pub fn find_rank(&self, rank: usize, program: &str) -> Result<Option<Pid>> {
        let variable = format!("RANK={rank}");
        let is_it = |(pid, environment): &(i32, Vec<String>)| {
            // A process that has ended meanwhile has no executable.
            let executable = fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
            environment.contains(&variable) && executable.ends_with(program)
        };
        let found = self.members.environments()?.into_iter().find(is_it);
        Ok(found.map(|(pid, _)| Pid::from_raw(pid)))
    }

    /// Kills all processes of the job at once. `process` is the one that the test has started; it
    /// may just have ended by itself.
    pub fn kill_all(&self, process: &mut Process) -> Result<()> {
        for pid in self.processes()? {
            let _ = kill(pid, Signal::SIGKILL);
        }
        process.wait()?;
        self.expect_nobody_left(Duration::from_secs(5))
    }

    /// Waits until no process of the job is alive, for at most `within`.
    pub fn expect_nobody_left(&self, within: Duration) -> Result<()> {
        until("every process of the job is gone", past(Instant::now() + within), || {
            Ok(self.processes()?.is_empty().then_some(()))
        })
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        // A process may start another one after it was found and before it is killed, so this
        // repeats until none is left.
        let _ = until("every process of the job is killed", past(Instant::now() + END), || {
            let processes = self.processes()?;
            for &pid in &processes {
                let _ = kill(pid, Signal::SIGKILL);
            }
            Ok(processes.is_empty().then_some(()))
        });
    }
}

impl Process {
    pub fn pid(&self) -> Pid {
        match &self.child {
            Running::Child(child) => Pid::from_raw(child.id().cast_signed()),
            Running::Forked(forked) => forked.pid,
        }
    }

    pub fn has_ended(&mut self) -> Result<bool> {
        Ok(self.child.try_wait()?.is_some())
    }

    /// Waits for its end. Fails with all its output if the job stops making progress.
    pub fn wait(&mut self) -> Result<Ended> {
        self.wait_unless(self.members.stand_still())
    }

    /// Waits for its end. Fails with all its output if it has not ended by `deadline`.
    pub fn wait_until(&mut self, deadline: Instant) -> Result<Ended> {
        self.wait_unless(past(deadline))
    }

    fn wait_unless(&mut self, give_up: impl FnMut() -> bool) -> Result<Ended> {
        let what = format!("`{}` ended", self.command);
        let status = until(&what, give_up, || self.child.try_wait());
        let stdout = String::from_utf8_lossy(&fs::read(&self.stdout)?).into_owned();
        let stderr = String::from_utf8_lossy(&fs::read(&self.stderr)?).into_owned();
        let status = status.with_context(|| format!("stdout:\n{stdout}\nstderr:\n{stderr}"))?;
        Ok(Ended { status, stdout, stderr, command: self.command.clone() })
    }
}

/// Waits until all have succeeded. The first that fails is reported at once, since the others may
/// be waiting for it forever.
pub fn expect_all_succeed(mut processes: Vec<Process>) -> Result<()> {
    while let Some(process) = processes.first() {
        let ended = until("one of them ended", process.members.stand_still(), || {
            let has_ended = |process: &mut Process| !matches!(process.child.try_wait(), Ok(None));
            Ok(processes.iter_mut().position(has_ended))
        });
        // If none ends, the first one's output says more than that nothing ended.
        processes.swap_remove(ended.unwrap_or(0)).wait_unless(|| true)?.expect_success()?;
    }
    Ok(())
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            let _ = kill(self.pid(), Signal::SIGKILL);
            let _ = until("it is dead", past(Instant::now() + END), || self.child.try_wait());
        }
    }
}

impl Running {
    fn try_wait(&mut self) -> Result<Option<ExitStatus>> {
        Ok(match self {
            Running::Child(child) => child.try_wait()?,
            Running::Forked(forked) => forked.try_wait(),
        })
    }
}

/// [`Job::expect_refusal`] in a job of its own.
pub fn expect_refusal(program: Command, code: i32, texts: &[&str]) -> Result<()> {
    Job::new()?.expect_refusal(program, code, texts)
}

/// The same for a program that is given each of these command lines. It neither panics nor leaves a file behind.
pub fn expect_refusals<const N: usize>(
    program: impl Fn(&str) -> Result<Command>,
    lines: &[(&str, i32, [&str; N])],
) -> Result<()> {
    for (line, code, texts) in lines {
        let job = Job::new()?;
        let ended = job.refusal(program(line)?, *code, texts)?;
        ensure!(ended.stderr.starts_with("error: "), "{ended}");
        ensure!(!ended.stderr.contains("panicked"), "{ended}");
        ensure!(job.files()?.is_empty(), "{line}: {:?}", job.files()?);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::programs::shell;

    #[test]
    fn a_dropped_job_kills_even_grandchildren_that_have_left_home() {
        let job = Job::new().unwrap();
        job.run(shell("setsid sleep 1000 & echo $!")).unwrap().expect_success().unwrap();
        // The shell does not wait until it has begun.
        let only = || Ok(<[Pid; 1]>::try_from(job.processes()?).ok());
        let [grandchild] = job.until("sleep has begun", only).unwrap();
        drop(job);
        let alive = fs::read(format!("/proc/{grandchild}/environ"));
        assert!(alive.is_err() || alive.is_ok_and(|environment| environment.is_empty()));
    }

    #[test]
    fn a_process_that_stands_still_is_reported_with_its_output() {
        let mut job = Job::new().unwrap();
        job.members.patience.idle = Duration::from_secs(2);
        let error = job.run(shell("echo so far; exec sleep 1000")).unwrap_err();
        assert!(format!("{error:#}").contains("so far"), "{error:#}");
    }

    #[test]
    fn a_process_that_has_not_ended_by_its_deadline_is_reported_with_its_output() {
        let job = Job::new().unwrap();
        let mut process = job.start(shell("echo so far; exec sleep 1000")).unwrap();
        let printed = || Ok((fs::metadata(&process.stdout)?.len() > 0).then_some(()));
        job.until("it has printed", printed).unwrap();
        let error = process.wait_until(Instant::now()).unwrap_err();
        assert!(format!("{error:#}").contains("so far"), "{error:#}");
    }
}
