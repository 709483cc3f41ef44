//! Ranks that a program starts itself: `torch.multiprocessing.spawn`.

use super::fault::record;
use crate::{Error, Result, check};
use nix::sys::{prctl::set_pdeathsig, signal::Signal};
use serde_json::Value;
use std::os::{fd::OwnedFd, unix::process::parent_id};
use std::process::{self, Child, Command};
use std::time::{Duration, Instant};
use std::{env, fs, net::TcpListener, path::PathBuf, sync::Mutex, thread};
use tch_parallel_base::lock;
use tch_parallel_contract::{CULPRIT, ELASTIC, LISTEN_FD, NOTICE};

/// Tells a process which rank it is, which process has started it, and the outcomes of the calls before, as JSON.
const SPAWNED: &str = "TCH_PARALLEL_SPAWNED";

type Outcome = Result<(), String>;

/// The outcomes of the calls so far. A rank repeats these calls before it comes to its own.
static OUTCOMES: Mutex<Vec<Outcome>> = Mutex::new(Vec::new());

/// Runs `worker` on `nprocs` ranks of this host, and returns when all have. If one fails, the others are
/// killed, and the error says which and why. `mp.spawn(worker, nprocs=nprocs)`
///
/// A rank is this program, started again with the same arguments: it runs what comes before this call
/// too, then `worker` with its number, and nothing after it. Earlier calls of `spawn` start nothing in a rank: they
/// return at once what they returned in the program. So calls come one after the other, always in the same order.
///
/// ```no_run
/// use tch_parallel::distributed::{ProcessGroup, spawn};
///
/// fn main() -> tch_parallel::Result<()> {
///     spawn(4, |_rank| ProcessGroup::from_env()?.barrier())
/// }
/// ```
///
/// # Errors
/// [`Error::Other`] for a rank that has failed, with its reason, and for one that cannot be started;
/// [`Error::Argument`] if `worker` calls it.
pub fn spawn<E>(nprocs: usize, worker: impl FnOnce(usize) -> Result<(), E>) -> Result<()>
where
    E: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let mut outcomes = lock(&OUTCOMES);
    let spawned = env::var(SPAWNED).ok().and_then(|spawned| serde_json::from_str(&spawned).ok());
    if let Some((rank, program, earlier)) = spawned {
        let (program, earlier, call): (u32, Vec<Outcome>, _) = (program, earlier, outcomes.len());
        let found = format_args!("called by rank {rank}");
        let expected = "called by the program alone: a rank cannot start ranks of its own";
        check(call <= earlier.len(), "spawn", found, expected)?;
        // The rank's own call counts too, so that one within its worker is refused.
        outcomes.push(earlier.get(call).cloned().unwrap_or(Ok(())));
        if let Some(outcome) = earlier.into_iter().nth(call) {
            return outcome.map_err(Error::other);
        }
        drop(outcomes);
        // Without it, ranks would outlive a program that is killed.
        let _ = set_pdeathsig(Signal::SIGTERM);
        // If the program ended before that line, no signal will come.
        if parent_id() != program {
            eprintln!("Error: the program that started rank {rank} has ended");
            c10d_sys::exit(1);
        }
        let outcome = record(|| worker(rank)).inspect_err(|error| eprintln!("Error: {error}"));
        c10d_sys::exit(outcome.is_err().into());
    }
    let result = run(nprocs, &outcomes);
    outcomes.push(result.as_ref().copied().map_err(ToString::to_string));
    result
}

/// Starts the ranks of a call, which get the outcomes of those before it, and waits for them.
fn run(nprocs: usize, outcomes: &[Outcome]) -> Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").map_err(Error::other)?;
    let port = listener.local_addr().map_err(Error::other)?.port().to_string();
    let count = nprocs.to_string();
    let mut command = Command::new(env::current_exe().map_err(Error::other)?);
    command.args(env::args_os().skip(1)).env_remove("TORCHELASTIC_USE_AGENT_STORE");
    command.env_remove(ELASTIC).env("WORLD_SIZE", &count).env("LOCAL_WORLD_SIZE", &count);
    command.env("MASTER_ADDR", "127.0.0.1").env("MASTER_PORT", port);
    // Rank 0 gets the socket, so that nobody else takes the port meanwhile.
    command.env(LISTEN_FD, "0").stdin(OwnedFd::from(listener));
    let mut ranks = Vec::new();
    for rank in 0..nprocs {
        let reason = env::temp_dir().join(format!("spawn-{}-{rank}.json", process::id()));
        // An earlier process with the same ID may have left it.
        let _ = fs::remove_file(&reason);
        let spawned =
            serde_json::to_string(&(rank, process::id(), outcomes)).map_err(Error::other)?;
        command.env("RANK", rank.to_string()).env("LOCAL_RANK", rank.to_string());
        command.env(SPAWNED, spawned);
        let process = command.env("TORCHELASTIC_ERROR_FILE", &reason).spawn();
        ranks.push(Rank { rank, process: process.map_err(Error::other)?, reason });
        command.env_remove(LISTEN_FD).stdin(process::Stdio::null());
    }
    // The first that has failed because of another rank, which may end a little later.
    let mut victim: Option<(Error, Instant)> = None;
    let mut is_late = false;
    while !ranks.is_empty() && !is_late {
        // Looks once more, so that what has ended by then is seen.
        is_late = victim.as_ref().is_some_and(|(_, at)| at.elapsed() >= NOTICE);
        for mut rank in std::mem::take(&mut ranks) {
            match rank.process.try_wait().map_err(Error::other)? {
                None => ranks.push(rank),
                Some(status) if status.success() => {}
                Some(status) => {
                    let report = fs::read(&rank.reason).unwrap_or_default();
                    let report = serde_json::from_slice(&report).unwrap_or(Value::Null);
                    let reason = report["message"]["message"].as_str();
                    let (rank, reason) = (rank.rank, reason.unwrap_or("it left no reason"));
                    let error = Error::other(format!("rank {rank} failed ({status}): {reason}"));
                    if report["message"]["extraInfo"].get(CULPRIT).is_none() {
                        return Err(error);
                    }
                    victim.get_or_insert((error, Instant::now()));
                }
            }
        }
        thread::sleep(Duration::from_millis(10));
    }
    victim.map_or(Ok(()), |(error, _)| Err(error))
}

struct Rank {
    rank: usize,
    process: Child,
    reason: PathBuf,
}

/// What is over already fails, and may.
impl Drop for Rank {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = fs::remove_file(&self.reason);
    }
}
