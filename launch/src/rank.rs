//! One rank: a process, at the head of a process group of its own.

use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus};
use std::rc::Rc;
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::Pid;

use crate::guard::Guard;
use crate::output::{Output, Routes};

/// A rank that has been started. Dropped while it runs, it is killed.
pub(crate) struct Rank {
    /// RANK.
    pub(crate) rank: u32,
    /// Its process id, and that of its group.
    pub(crate) pid: Pid,
    /// What it has written.
    pub(crate) output: Output,
    /// How it ended; `None` while it runs.
    pub(crate) end: Option<End>,
    child: Child,
    guard: Rc<Guard>,
}

/// The end of a rank.
#[derive(Clone, Copy)]
pub(crate) struct End {
    /// Its exit code or signal.
    pub(crate) status: ExitStatus,
    /// When it was seen to end: the earliest failure is the cause of the others.
    pub(crate) at: Instant,
}

impl Rank {
    /// Starts a rank. `on_end` is called, on another thread, when its process has ended.
    pub(crate) fn start(
        rank: u32,
        mut command: Command,
        routes: Routes,
        guard: &Rc<Guard>,
        on_end: impl FnOnce(Instant) + Send + 'static,
    ) -> Result<Self> {
        routes.set(&mut command);
        // A group of its own, so that a signal reaches whatever the program has started too.
        let mut child = command
            .process_group(0)
            .spawn()
            .with_context(|| format!("cannot start rank {rank}"))?;
        let pid = Pid::from_raw(child.id().try_into()?);
        guard.protect(pid);
        let output = routes.start(&mut child)?;
        let started = Rank { rank, pid, output, end: None, child, guard: Rc::clone(guard) };
        let wait = move || {
            // WNOWAIT leaves the process unreaped: until `reap` nobody else can get its number.
            while waitid(Id::Pid(pid), WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT)
                == Err(Errno::EINTR)
            {}
            on_end(Instant::now());
        };
        thread::Builder::new().spawn(wait).context("cannot start a thread to wait for a rank")?;
        Ok(started)
    }

    /// Whether it has not ended.
    pub(crate) fn is_running(&self) -> bool {
        self.end.is_none()
    }

    /// Sends a signal to the rank and all that it has started.
    pub(crate) fn signal(&self, signal: Signal) {
        if self.is_running() {
            // The only error is that nobody is left to receive it.
            let _ = killpg(self.pid, signal);
        }
    }

    /// Takes note of the end of the process, and kills what it has left behind in its group.
    pub(crate) fn reap(&mut self, at: Instant) -> Result<End> {
        self.signal(Signal::SIGKILL);
        self.guard.release(self.pid);
        let status =
            self.child.wait().with_context(|| format!("cannot wait for rank {}", self.rank))?;
        let end = End { status, at };
        self.end = Some(end);
        Ok(end)
    }
}

impl Drop for Rank {
    fn drop(&mut self) {
        if self.is_running() {
            // The launcher gives up because of another error, which it reports.
            let _ = self.reap(Instant::now());
        }
    }
}
