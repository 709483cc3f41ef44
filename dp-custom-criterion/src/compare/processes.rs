//! The processes of a run, with a time limit.

use anyhow::{Context, Result, bail, ensure};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use std::fs::File;
use std::io::{Read, Seek};
use std::os::unix::process::parent_id;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Between two looks at processes that run for seconds.
const INTERVAL: Duration = Duration::from_millis(10);

/// How many lines of a process that failed are shown.
const LINES: usize = 10;

/// Runs commands at the same time, each with the name that messages call it by, and returns when all
/// have ended well.
///
/// # Errors
/// The first that fails is reported, with its last lines, and so is one that takes longer than
/// `limit`. No process is left then.
pub fn run(commands: Vec<(String, Command)>, limit: Duration) -> Result<()> {
    let deadline = Instant::now() + limit;
    let mut running = commands
        .into_iter()
        .map(|(name, command)| Process::start(name, command))
        .collect::<Result<Vec<_>>>()?;
    while !running.is_empty() {
        let mut still = Vec::new();
        for mut process in running {
            match process.child.try_wait()? {
                None => still.push(process),
                Some(status) if status.success() => {}
                Some(status) => {
                    let said = process.last_lines()?;
                    bail!("{} failed ({status}); {said}", process.name);
                }
            }
        }
        running = still;
        if let Some(process) = running.first_mut()
            && Instant::now() >= deadline
        {
            let limit = limit.as_secs();
            let said = process.last_lines()?;
            bail!("{} took more than {limit} s; --timeout allows more; {said}", process.name);
        }
        sleep(INTERVAL);
    }
    Ok(())
}

/// Killed and reaped when it goes out of scope.
struct Process {
    name: String,
    child: Child,
    stderr: File,
}

impl Process {
    fn start(name: String, mut command: Command) -> Result<Self> {
        let stderr =
            tempfile::tempfile().context("cannot create a file for a process's messages")?;
        let child = command
            .stdout(Stdio::null())
            .stderr(stderr.try_clone()?)
            .spawn()
            .with_context(|| format!("cannot start {name}"))?;
        Ok(Self { name, child, stderr })
    }

    fn last_lines(&mut self) -> Result<String> {
        let mut bytes = Vec::new();
        self.stderr.rewind()?;
        self.stderr.read_to_end(&mut bytes)?;
        let text = String::from_utf8_lossy(&bytes);
        let lines: Vec<_> = text.lines().collect();
        Ok(match &lines[lines.len().saturating_sub(LINES)..] {
            [] => "it left no message".into(),
            last => format!("its last lines:\n  {}", last.join("\n  ")),
        })
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // One that has ended cannot be killed, and needs not.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Lets this process, which `parent` has started, end with it, even if that is killed.
pub fn end_with(parent: u32) -> Result<()> {
    set_pdeathsig(Signal::SIGKILL).context("cannot tie this process to compare")?;
    // A parent that died before that line sends no signal.
    ensure!(parent_id() == parent, "compare, process {parent}, is gone");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(name: &str, script: &str) -> (String, Command) {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        (name.into(), command)
    }

    #[test]
    fn the_first_that_fails_is_reported_at_once_and_the_others_end() {
        let begun = Instant::now();
        let sleeper = shell("rank 0", "exec sleep 1000");
        let failing = shell("rank 1", "for i in $(seq 12); do echo line $i >&2; done; exit 3");
        let limit = Duration::from_secs(60);
        let error = run(vec![sleeper, failing], limit).unwrap_err().to_string();
        assert!(error.starts_with("rank 1 failed (exit status: 3); its last lines:\n  line 3\n"));
        assert!(error.ends_with("\n  line 12"), "{error}");
        assert!(begun.elapsed() < limit);
    }

    #[test]
    fn whoever_takes_too_long_is_killed() {
        let limit = Duration::from_millis(100);
        let error = run(vec![shell("ddp", "exec sleep 1000")], limit).unwrap_err().to_string();
        assert_eq!(error, "ddp took more than 0 s; --timeout allows more; it left no message");
    }

    #[test]
    fn all_that_end_well_are_waited_for() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("done");
        let slow = format!("sleep 0.2; touch {}", file.display());
        run(vec![shell("a", "true"), shell("b", &slow)], Duration::from_secs(60)).unwrap();
        assert!(file.exists());
    }
}
