//! One rank: the variables that tell a program its rank, and its process, which leads a process group of its own.

mod failure;

use crate::output::{Output, Routes};
use crate::{error_file, error_file::Clock, guard::Guard, prelude::*, protocol::proof};
use nix::errno::Errno;
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::Pid;
use std::{os::unix::net::UnixStream, os::unix::process::CommandExt};
use tch_parallel_contract::{ELASTIC, LISTEN_FD};

/// Variables of an outer launcher. A rank that read them would look for that launcher's store or socket.
const OUTER: [&str; 4] = [ELASTIC, LISTEN_FD, "TORCHELASTIC_USE_AGENT_STORE", error_file::VARIABLE];

/// A rank's environment variables, as torchrun's. `rank` is its number among this node's `local_world_size`.
pub(crate) fn variables(
    args: &Args,
    placement: &Placement,
    local_rank: u16,
    (rank, local_world_size): (u16, u16),
    port: u16,
) -> BTreeMap<&'static str, String> {
    BTreeMap::from([
        ("RANK", placement.rank(rank).to_string()),
        ("LOCAL_RANK", local_rank.to_string()),
        ("WORLD_SIZE", placement.world_size.to_string()),
        ("LOCAL_WORLD_SIZE", local_world_size.to_string()),
        ("GROUP_RANK", placement.node_rank.to_string()),
        ("GROUP_WORLD_SIZE", placement.nodes.to_string()),
        ("ROLE_NAME", args.role.clone()),
        ("ROLE_RANK", (placement.first_role_rank + u32::from(rank)).to_string()),
        ("ROLE_WORLD_SIZE", placement.role_world_size.to_string()),
        ("MASTER_ADDR", args.master_addr().to_string()),
        ("MASTER_PORT", port.to_string()),
        ("TORCHELASTIC_RESTART_COUNT", placement.restarts.to_string()),
        ("TORCHELASTIC_MAX_RESTARTS", args.max_restarts.to_string()),
        ("TORCHELASTIC_RUN_ID", args.rdzv_id.clone()),
    ])
}

/// Prepares the environment that is the same for all ranks.
pub(crate) fn set_common_variables(command: &mut Command, args: &Args) {
    // The secret is for the launchers alone.
    for name in OUTER.into_iter().chain([proof::SECRET]) {
        command.env_remove(name);
    }
    // Ranks that each start a thread per core slow each other down.
    if args.nproc_per_node > 1 && std::env::var_os("OMP_NUM_THREADS").is_none() {
        command.env("OMP_NUM_THREADS", "1");
    }
}

/// A rank that has been started. Dropping it while it runs kills it.
pub(crate) struct Rank {
    pub(crate) rank: u32,
    /// Its process ID, which is also its process group's.
    pub(crate) pid: Pid,
    pub(crate) started_in: u32,
    /// How it is told its place, once it has said that it takes part in a job whose ranks come and go.
    pub(crate) channel: Option<UnixStream>,
    pub(crate) output: Output,
    pub(crate) end: Option<End>,
    /// Where it leaves the reason of its failure.
    error_file: Option<(PathBuf, Clock)>,
    /// When the launcher first sent it a signal.
    signalled: OnceCell<Instant>,
    child: Child,
    guard: Rc<Guard>,
}

#[derive(Clone, Copy)]
pub(crate) struct End {
    pub(crate) status: ExitStatus,
    /// When the launcher saw it end: the earliest failure causes the others.
    pub(crate) at: Instant,
}

impl Rank {
    /// Starts a rank. `on_end` is called, on another thread, when its process has ended.
    pub(crate) fn start(
        (rank, started_in): (u32, u32),
        mut command: Command,
        error_file: Option<(PathBuf, Clock)>,
        routes: Routes,
        guard: &Rc<Guard>,
        on_end: impl FnOnce(Instant) + Send + 'static,
    ) -> Result<Self> {
        routes.set(&mut command);
        command.envs(error_file.iter().map(|(path, _)| (error_file::VARIABLE, path)));
        // With a group of its own, a signal also reaches whatever the program has started.
        let child = command.process_group(0).spawn();
        let mut child = child.with_context(|| format!("cannot start rank {rank}"))?;
        let pid = Pid::from_raw(child.id().try_into()?);
        guard.protect(pid);
        let output = routes.start(&mut child)?;
        let started = Rank {
            rank,
            pid,
            started_in,
            channel: None,
            output,
            end: None,
            error_file,
            signalled: OnceCell::new(),
            child,
            guard: Rc::clone(guard),
        };
        let wait = move || {
            // WNOWAIT leaves a zombie, so that nothing else gets the process ID before `reap`.
            let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT;
            while waitid(Id::Pid(pid), flags) == Err(Errno::EINTR) {}
            on_end(Instant::now());
        };
        thread::Builder::new().spawn(wait).context("cannot start a thread to wait for a rank")?;
        Ok(started)
    }

    pub(crate) fn is_running(&self) -> bool {
        self.end.is_none()
    }

    /// Whether the launcher had already sent it a signal at this time.
    pub(crate) fn was_signalled_by(&self, time: Instant) -> bool {
        self.signalled.get().is_some_and(|first| *first <= time)
    }

    /// Sends a signal to the rank and to all that it has started.
    pub(crate) fn signal(&self, signal: Signal) {
        if self.is_running() {
            self.signalled.get_or_init(Instant::now);
            // The only error is that no process is left to receive it.
            let _ = killpg(self.pid, signal);
        }
    }

    /// Records that the process has ended, and kills what it has left behind in its group.
    pub(crate) fn reap(&mut self, at: Instant) -> Result<End> {
        self.signal(Signal::SIGKILL);
        self.guard.release(self.pid);
        let status =
            self.child.wait().with_context(|| format!("cannot wait for rank {}", self.rank))?;
        Ok(*self.end.insert(End { status, at }))
    }
}

impl Drop for Rank {
    fn drop(&mut self) {
        if self.is_running() {
            // The launcher stops because of another error, which it reports.
            let _ = self.reap(Instant::now());
        }
    }
}
