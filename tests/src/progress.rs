//! Whether processes make progress, however slowly.
//!
//! A test gives up on a job that has stopped, never on one that is slow, because the same training
//! can take a hundred times as long on one processor as on another.

use crate::prelude::*;
use std::time::SystemTime;

/// The shortest time between two looks, because checking all files and processes takes a while.
const INTERVAL: Duration = Duration::from_millis(500);

/// How long processes may go on without a sign of progress.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// Without using the processor and without changing a file: they wait for something that never comes.
    pub idle: Duration,
    /// Without changing a file, although they use the processor: they are in an endless loop.
    pub silent: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self { idle: Duration::from_secs(60), silent: Duration::from_secs(1800) }
    }
}

impl Patience {
    /// Gives up on processes that write below `root`.
    pub fn with_job(self, root: PathBuf, processes: impl Fn() -> Vec<Pid>) -> impl FnMut() -> bool {
        let (mut work, mut change) = (Unchanged::new(), Unchanged::new());
        let mut asked = Instant::now();
        move || {
            if asked.elapsed() < INTERVAL {
                return false;
            }
            asked = Instant::now();
            let processes = processes();
            let idle = work.see(self.work(&processes));
            let silent = change.see(newest_change(&root));
            idle.min(silent) >= self.idle || silent >= self.silent
        }
    }

    /// A value that changes when one of the processes has begun or ended, or when together they
    /// have used another twentieth of the time that they may be idle. Less does not count as work,
    /// since polling takes processor time too.
    fn work(self, processes: &[Pid]) -> (Vec<Pid>, u128) {
        let used: Duration = processes.iter().filter_map(|&process| processor_time(process)).sum();
        (processes.to_vec(), used.as_micros() / (self.idle / 20).as_micros())
    }
}

/// How long a value has been the same.
struct Unchanged<T> {
    value: Option<T>,
    since: Instant,
}

impl<T: PartialEq> Unchanged<T> {
    fn new() -> Self {
        Self { value: None, since: Instant::now() }
    }

    fn see(&mut self, value: T) -> Duration {
        let value = Some(value);
        if self.value != value {
            *self = Self { value, since: Instant::now() };
        }
        self.since.elapsed()
    }
}

/// The processor time that all threads of a process have used; `None` if the process is gone.
fn processor_time(process: Pid) -> Option<Duration> {
    let (utime, stime) = (14, 15);
    // Linux reports hundredths of a second to programs, whatever its internal clock.
    Some(Duration::from_millis(10 * (stat(process, utime)? + stat(process, stime)?)))
}

/// A number in Linux's `/proc/PID/stat`, by its place there; `None` if the process is gone.
pub(crate) fn stat(process: Pid, number: usize) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name, field 2, may contain any characters. Field 3, the state, follows its closing bracket.
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_whitespace().nth(number - 3)?.parse().ok()
}

/// When something below a directory was last written, created or removed.
fn newest_change(directory: &Path) -> Option<SystemTime> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let of_entry = |entry: fs::DirEntry| match entry.file_type() {
        Ok(kind) if kind.is_dir() => newest_change(&entry.path()),
        _ => entry.metadata().and_then(|file| file.modified()).ok(),
    };
    let own = fs::metadata(directory).and_then(|file| file.modified()).ok();
    entries.map(of_entry).chain([own]).max().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::programs::shell;
    use std::thread::sleep;

    const SOON: Duration = Duration::from_secs(2);
    const LATE: Duration = Duration::from_secs(1000);

    /// Whether a job that runs this script is given up on within a few seconds.
    fn is_given_up_on(script: &str, patience: Patience) -> bool {
        let directory = tempfile::tempdir().unwrap();
        let mut running = shell(script).current_dir(&directory).spawn().unwrap();
        let pid = Pid::from_raw(running.id().cast_signed());
        let mut give_up = patience.with_job(directory.path().to_owned(), || vec![pid]);
        let given_up = (0..40).any(|_| {
            sleep(SOON / 20);
            give_up()
        });
        running.kill().unwrap();
        running.wait().unwrap();
        given_up
    }

    #[test]
    fn a_job_that_works_or_writes_makes_progress_until_it_has_been_silent_for_long() {
        for (script, idle, silent, given_up) in [
            ("exec sleep 1000", SOON, LATE, true),
            ("while :; do :; done", SOON, LATE, false),
            ("while :; do echo > line; sleep 0.2; done", SOON, LATE, false),
            ("while :; do :; done", LATE, SOON, true),
        ] {
            assert_eq!(is_given_up_on(script, Patience { idle, silent }), given_up, "{script}");
        }
    }
}
