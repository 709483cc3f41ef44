//! All processes of a job: the ones that the test has started, and those that they have started in turn.

use crate::progress::{Patience, stat};
use crate::{forked::Forked, prelude::*};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::{io, process, thread::yield_now};

/// Every process of a job inherits this environment variable. It lets the job find all of them,
/// even those that have moved to their own session or lost their parent.
const TAG: &str = "TCH_PARALLEL_TEST_JOB";

/// The processes that have inherited one value of [`TAG`], and those forked for them.
#[derive(Debug, Clone)]
pub(crate) struct Members {
    tag: String,
    /// Kept separately, because Linux shows for these the environment of the process from which they were forked.
    forked: Arc<Mutex<Vec<Forked>>>,
    /// They write below this directory.
    root: PathBuf,
    /// When a test gives up on them.
    pub(crate) patience: Patience,
}

impl Members {
    pub(crate) fn new(root: &Path) -> Self {
        static JOBS: AtomicUsize = AtomicUsize::new(0);
        let tag = format!("{}-{}", process::id(), JOBS.fetch_add(1, Ordering::Relaxed));
        Self { tag, forked: Arc::default(), root: root.to_owned(), patience: Patience::default() }
    }

    /// Makes the process that this command starts a member.
    pub(crate) fn add(&self, command: &mut Command) {
        command.env(TAG, &self.tag);
    }

    pub(crate) fn add_forked(&self, process: Forked) {
        self.forked.lock().unwrap_or_else(PoisonError::into_inner).push(process);
    }

    /// The members that are alive.
    pub(crate) fn pids(&self) -> Result<Vec<Pid>> {
        Ok(self.environments()?.into_keys().map(Pid::from_raw).collect())
    }

    /// The environment of each member that is alive. Linux shows it under /proc as it was when the
    /// program began; that of a dead process that has not been reaped is empty.
    pub(crate) fn environments(&self) -> Result<BTreeMap<i32, Vec<String>>> {
        let tag = format!("{TAG}={}", self.tag);
        let forked = self.forked.lock().unwrap_or_else(PoisonError::into_inner);
        let alive = forked.iter().filter(|process| process.try_wait().is_none());
        let mut found: BTreeMap<_, _> =
            alive.map(|process| (process.pid.as_raw(), process.environment.clone())).collect();
        for entry in fs::read_dir("/proc")? {
            let name = entry?.file_name();
            let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) else { continue };
            // Processes that cannot be read belong to other users or have just ended, so they are not ours.
            let Ok(bytes) = environment(pid) else { continue };
            let variables = || bytes.split(|&byte| byte == 0);
            if variables().any(|variable| variable == tag.as_bytes()) {
                let text = |variable| String::from_utf8_lossy(variable).into_owned();
                found.insert(pid, variables().map(text).collect());
            }
        }
        Ok(found)
    }

    /// Returns true once there is no point in waiting for them any longer.
    pub(crate) fn stand_still(&self) -> impl FnMut() -> bool + use<> {
        let members = self.clone();
        // A list that cannot be read counts as unchanged.
        self.patience.with_job(self.root.clone(), move || members.pids().unwrap_or_default())
    }
}

/// The environment of a process. While it goes from one program to the next, Linux shows neither an
/// environment nor arguments of it, so this waits for the next program.
fn environment(pid: i32) -> io::Result<Vec<u8>> {
    loop {
        let environment = fs::read(format!("/proc/{pid}/environ"))?;
        if !environment.is_empty()
            || !fs::read(format!("/proc/{pid}/cmdline"))?.is_empty()
            || has_no_program(pid)
        {
            return Ok(environment);
        }
        yield_now();
    }
}

/// Whether it is a thread of Linux itself, or is about to end, or has ended and has not been reaped.
fn has_no_program(pid: i32) -> bool {
    const PF_EXITING: u64 = 0x4;
    const PF_KTHREAD: u64 = 0x20_0000;
    let flags = stat(Pid::from_raw(pid), 9);
    flags.is_none_or(|flags| flags & (PF_EXITING | PF_KTHREAD) != 0)
}
