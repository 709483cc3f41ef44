//! Processes that a program starts to do its work: `torch.multiprocessing`.
//!
//! Like `mp.spawn` with `join=True`, [`run`] waits for all processes and ends all of them if one fails. The processes
//! run programs rather than functions: most often this same program, with other flags.

use anyhow::{Result, anyhow, bail, ensure};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use std::io::{BufRead, BufReader, Read, Seek};
use std::os::{fd::OwnedFd, unix::process::parent_id};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::{env::temp_dir, fs::File, net::TcpListener, thread, time::Duration, time::Instant};
use tch_parallel::Error;
use tch_parallel_contract::LISTEN_FD;

/// The time between two checks of processes, which run for seconds.
const INTERVAL: Duration = Duration::from_millis(10);

/// How many of the last lines of a failed process are shown.
const LINES: usize = 10;

/// A process to be started.
#[derive(Debug)]
pub struct Process {
    name: String,
    command: Command,
}

impl Process {
    /// `name` is the process's name in messages. It gets no standard input.
    pub fn new(name: impl Into<String>, mut command: Command) -> Self {
        command.stdin(Stdio::null());
        Process { name: name.into(), command }
    }

    /// The commands as ranks of one job on this host, as a launcher would start them: RANK, WORLD_SIZE, MASTER_ADDR …
    /// are set for each. Messages call them `NAME, rank 0,` and so on. Fails without a free port.
    pub fn ranks(name: &str, commands: Vec<Command>) -> Result<Vec<Process>> {
        let listener = TcpListener::bind("127.0.0.1:0")
            .map_err(|error| anyhow!("{name} cannot listen on 127.0.0.1: {error}"))?;
        let port = listener.local_addr()?.port();
        let mut listener = Some(OwnedFd::from(listener));
        let world_size = commands.len().to_string();
        let rank = |(rank, command): (usize, Command)| {
            let mut process = Process::new(format!("{name}, rank {rank},"), command);
            // They do not belong to the job of the launcher that may have started this process.
            process.command.env_remove("TORCHELASTIC_USE_AGENT_STORE");
            let (rank, port) = (rank.to_string(), port.to_string());
            process.command.envs([("RANK", &rank), ("LOCAL_RANK", &rank)]);
            process.command.envs([("WORLD_SIZE", &world_size), ("LOCAL_WORLD_SIZE", &world_size)]);
            process.command.env("MASTER_ADDR", "127.0.0.1").env("MASTER_PORT", port);
            if let Some(listener) = listener.take() {
                // Rank 0's standard input, so that nobody else can take the port meanwhile.
                process.command.env(LISTEN_FD, "0").stdin(listener);
            }
            process
        };
        Ok(commands.into_iter().enumerate().map(rank).collect())
    }
}

/// Runs processes at the same time, and returns when all have succeeded. `torch.multiprocessing.spawn`
///
/// Those that take longer than `timeout` seconds, which the user sets with the flag `--timeout`, are killed.
///
/// `on_line` is called at once with every line that a process prints to stdout. The error for the first process that
/// fails has the last lines of its stderr. When this fails, all processes have been ended.
pub fn run(processes: Vec<Process>, timeout: u64, mut on_line: impl FnMut(&str)) -> Result<()> {
    let deadline = Instant::now() + Duration::from_secs(timeout);
    let (sender, lines) = channel();
    let start = |process| Running::start(process, sender.clone());
    let mut running = processes.into_iter().map(start).collect::<Result<Vec<_>>>()?;
    drop(sender);
    loop {
        match lines.recv_timeout(INTERVAL) {
            Ok(line) => on_line(&line),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) if running.is_empty() => return Ok(()),
            // All have closed their stdout, but some still run.
            Err(RecvTimeoutError::Disconnected) => thread::sleep(INTERVAL),
        }
        let mut still = Vec::new();
        for mut process in running {
            match process.child.try_wait() {
                Ok(None) => still.push(process),
                Ok(Some(status)) if status.success() => {}
                Ok(Some(status)) => {
                    let said = process.last_lines()?;
                    bail!("{} failed ({status}); {said}", process.name);
                }
                Err(error) => bail!("{} {error}", process.name),
            }
        }
        running = still;
        if let Some(process) = running.first_mut().filter(|_| Instant::now() >= deadline) {
            let (said, name) = (process.last_lines()?, &process.name);
            bail!("{name} took more than {timeout} s; --timeout allows more; {said}");
        }
    }
}

/// Killed and reaped when it goes out of scope.
struct Running {
    name: String,
    child: Child,
    stderr: File,
}

impl Running {
    fn start(process: Process, lines: Sender<String>) -> Result<Self> {
        let Process { name, mut command } = process;
        let stderr = tempfile::tempfile().map_err(Error::io("create a file in", temp_dir()))?;
        let copy = stderr.try_clone().map_err(Error::io("use a file in", temp_dir()))?;
        command.stdout(Stdio::piped()).stderr(copy);
        let mut child = command.spawn().map_err(Error::io("start", command.get_program()))?;
        if let Some(stdout) = child.stdout.take() {
            // Ends with the process.
            thread::spawn(move || {
                let mut printed = BufReader::new(stdout).split(b'\n').map_while(|line| line.ok());
                printed.try_for_each(|line| lines.send(String::from_utf8_lossy(&line).into_owned()))
            });
        }
        Ok(Self { name, child, stderr })
    }

    fn last_lines(&mut self) -> Result<String> {
        let mut bytes = Vec::new();
        let read = self.stderr.rewind().and_then(|()| self.stderr.read_to_end(&mut bytes));
        read.map_err(Error::io("read a file in", temp_dir()))?;
        let text = String::from_utf8_lossy(&bytes);
        let lines: Vec<_> = text.lines().collect();
        Ok(match &lines[lines.len().saturating_sub(LINES)..] {
            [] => "it left no message".into(),
            last => format!("its last lines:\n  {}", last.join("\n  ")),
        })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // An error is ignored: the process may already have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Makes this process end when `parent`, which started it, ends, even if it is killed. Fails if it is gone already.
pub fn end_with(parent: u32) -> Result<()> {
    let name = format!("process {parent}, which started this one,");
    set_pdeathsig(Signal::SIGKILL)
        .map_err(|error| anyhow!("{name} cannot be waited for: {error}"))?;
    // No signal comes from a parent that had already died.
    ensure!(parent_id() == parent, "{name} is gone");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(name: &str, script: &str) -> Process {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Process::new(name, command)
    }

    const MINUTE: u64 = 60;

    #[test]
    fn the_first_that_fails_is_reported_at_once_and_the_others_end() {
        let begun = Instant::now();
        let sleeper = shell("rank 0", "exec sleep 1000");
        let failing = shell("rank 1", "for i in $(seq 12); do echo line $i >&2; done; exit 3");
        let error = run(vec![sleeper, failing], MINUTE, |_| {}).unwrap_err().to_string();
        assert!(error.starts_with("rank 1 failed (exit status: 3); its last lines:\n  line 3\n"));
        assert!(error.ends_with("\n  line 12"), "{error}");
        assert!(begun.elapsed() < Duration::from_secs(60));
    }

    #[test]
    fn all_that_end_well_are_waited_for_and_every_line_is_told() {
        let directory = tempfile::tempdir().unwrap();
        let end = directory.path().join("end");
        let script = format!("echo a; exec >&2; sleep 0.2; : > {}", end.display());
        let slow = shell("slow", &script);
        let quick = shell("quick", "printf 'b\\nno end'");
        let mut told = Vec::new();
        run(vec![slow, quick], MINUTE, |line| told.push(line.to_owned())).unwrap();
        told.sort();
        assert_eq!(told, ["a", "b", "no end"]);
        assert!(end.exists(), "the slow one was not waited for");
    }

    #[test]
    fn ranks_know_their_place_and_rank_0_has_the_socket() {
        let script = "test -S /proc/self/fd/0 && echo \"$RANK listens\"; \
                      echo $RANK of $WORLD_SIZE at $MASTER_ADDR";
        let commands = [(); 2].map(|()| shell("", script).command);
        let ranks = Process::ranks("ddp", commands.into()).unwrap();
        assert_eq!(ranks[1].name, "ddp, rank 1,");
        let mut told = Vec::new();
        run(ranks, MINUTE, |line| told.push(line.to_owned())).unwrap();
        told.sort();
        assert_eq!(told, ["0 listens", "0 of 2 at 127.0.0.1", "1 of 2 at 127.0.0.1"]);
    }
}
