//! The report of a failed job: which rank is at fault, why, and the exit code that it means.

use std::cmp::Reverse;
use std::fmt;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde::{Deserialize, Serialize};

use crate::console::say;
use crate::rank::Rank;

/// How many of the ranks that failed later are listed one by one.
const LISTED: usize = 8;

/// The longest explanation that is sent to other nodes, in characters.
const LONGEST: usize = 5000;

/// The other ranks may notice that a process was killed, and report it, before the launcher does:
/// the kernel first closes its connections.
pub(crate) const NOTICED_BEFORE: Duration = Duration::from_millis(50);

/// How a rank failed: what the launchers of a job tell each other, and print.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Failure {
    /// RANK.
    pub(crate) rank: u32,
    /// Its process ID.
    pub(crate) pid: i32,
    /// Whose fault it is.
    pub(crate) fault: Fault,
    /// How long ago it failed.
    pub(crate) age: Duration,
    /// The launcher's exit code, if this rank is the one at fault.
    pub(crate) exit_code: u8,
    /// `exited with code 1`, `was killed by SIGSEGV`.
    ending: String,
    /// The reason, as far as it is known.
    explanation: String,
}

/// Whose fault a failure is, the likeliest culprit first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum Fault {
    /// Its own, for all that is known.
    Own,
    /// Another rank's, as this one says.
    Another,
    /// The launcher has ended it.
    Launcher,
}

impl Failure {
    /// The failure of a rank that has failed, or is about to end after it has left a reason. The
    /// output of one that has ended must have been drained. `now` is the same for all that are compared.
    pub(crate) fn of(rank: &Rank, now: Instant) -> Option<Self> {
        let reason = rank.reason();
        let (fault, at, end) = match (&reason, rank.end) {
            (_, Some(end)) if end.status.success() => return None,
            (Some(reason), end) if !rank.was_signalled_by(reason.at) => {
                let fault = if reason.is_victim { Fault::Another } else { Fault::Own };
                // It may have waited for the others to learn the reason until the launcher ended it.
                (fault, reason.at, end.filter(|end| !rank.was_signalled_by(end.at)))
            }
            (_, Some(end)) if rank.was_signalled_by(end.at) => (Fault::Launcher, end.at, Some(end)),
            (_, Some(end)) if end.status.signal().is_some() => {
                (Fault::Own, end.at.checked_sub(NOTICED_BEFORE).unwrap_or(end.at), Some(end))
            }
            (_, Some(end)) => (Fault::Own, end.at, Some(end)),
            (_, None) => return None,
        };
        Some(Failure {
            rank: rank.rank,
            pid: rank.pid.as_raw(),
            fault,
            age: now.saturating_duration_since(at),
            exit_code: end.map_or(1, |end| exit_code(end.status)),
            ending: end.map_or_else(|| "failed".to_owned(), |end| ending(end.status)),
            explanation: explanation(rank, reason.map(|reason| reason.message)),
        })
    }

    /// A failure for tests.
    #[cfg(test)]
    pub(crate) fn example(rank: u32, fault: Fault, age: Duration) -> Self {
        let (ending, explanation) = ("exited with code 3".to_owned(), ": no data".to_owned());
        Failure { rank, pid: 1, fault, age, exit_code: 3, ending, explanation }
    }

    /// The failure with an explanation that fits into a message. Its end, where errors stand, is kept.
    pub(crate) fn shortened(mut self) -> Self {
        let count = self.explanation.chars().count();
        if count > LONGEST {
            let head = LONGEST / 5;
            let begin = self.explanation.chars().take(head);
            let end = self.explanation.chars().skip(count - (LONGEST - head));
            self.explanation = begin.chain("\n    ...\n    ".chars()).chain(end).collect();
        }
        self
    }

    /// The smallest is the failure that explains the others.
    pub(crate) fn order(&self) -> (Fault, Reverse<Duration>) {
        (self.fault, Reverse(self.age))
    }
}

/// `rank 1 (pid 4711) exited with code 1: cannot write model.safetensors`
impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Failure { rank, pid, ending, explanation, .. } = self;
        write!(f, "rank {rank} (pid {pid}) {ending}{explanation}")
    }
}

/// The reason if the rank has left it, and its last lines if the console has not shown them. Without a
/// reason, its last lines in any case.
fn explanation(rank: &Rank, reason: Option<String>) -> String {
    let full_log = match &rank.output.stderr_log {
        Some(log) => format!(" (all of stderr in {})", log.display()),
        None => String::new(),
    };
    let lines = match rank.output.last_lines() {
        None => "; its messages are above".to_owned(),
        Some(lines) if lines.is_empty() => "; it wrote nothing to stderr".to_owned(),
        Some(lines) => format!("; its last lines{full_log}:\n    {}", lines.join("\n    ")),
    };
    match reason {
        Some(reason) if rank.output.is_shown => format!(": {}", indented(&reason)),
        Some(reason) => format!(": {}{lines}", indented(&reason)),
        None => lines,
    }
}

fn indented(text: &str) -> String {
    text.lines().collect::<Vec<_>>().join("\n    ")
}

/// Names the rank at fault, with the reason, then the other ranks that failed. Returns the
/// launcher's exit code. `reserved` is whether launch reserved the port for rank 0.
pub(crate) fn failure(ranks: &[Rank], reserved: bool) -> u8 {
    let now = Instant::now();
    let mut failures: Vec<_> = ranks.iter().filter_map(|rank| Failure::of(rank, now)).collect();
    failures.sort_by_key(Failure::order);
    let Some((culprit, followers)) = failures.split_first() else { return 1 };
    say(culprit);
    if culprit.rank == 0 && reserved && port_is_taken(&culprit.explanation) {
        say(
            "launch reserves the port for rank 0: a program that binds it without SO_REUSEADDR needs --master-port",
        );
    }
    if !followers.is_empty() {
        let mut listed: Vec<String> = followers
            .iter()
            .take(LISTED)
            .map(|failure| format!("rank {} {}", failure.rank, failure.ending))
            .collect();
        if followers.len() > LISTED {
            listed.push(format!("{} more failed", followers.len() - LISTED));
        }
        say(format_args!("after that, {}", listed.join(", ")));
    }
    culprit.exit_code
}

/// Names the ranks that a signal did not end in time.
pub(crate) fn killed(ranks: &[Rank], grace: Duration) {
    for rank in ranks.iter().filter(|rank| rank.is_running()) {
        say(format_args!(
            "rank {} (pid {}) did not end within {} s and is killed",
            rank.rank,
            rank.pid,
            grace.as_secs()
        ));
    }
}

fn exit_code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| Some(128 + status.signal()?)).unwrap_or(1);
    u8::try_from(code).unwrap_or(1)
}

fn ending(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exited with code {code}"),
        (None, Some(number)) => match Signal::try_from(number) {
            Ok(signal) => format!("was killed by {signal}"),
            Err(_) => format!("was killed by signal {number}"),
        },
        (None, None) => format!("ended in an unknown way ({status})"),
    }
}

fn port_is_taken(explanation: &str) -> bool {
    let explanation = explanation.to_lowercase();
    explanation.contains("eaddrinuse") || explanation.contains("address already in use")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_explanation_loses_its_middle_and_never_its_end() {
        let mut failure = Failure::example(1, Fault::Own, Duration::ZERO);
        failure.explanation = format!(": begin {} out of memory", "\u{e9}".repeat(2 * LONGEST));
        let text = failure.shortened().explanation;
        assert!(text.starts_with(": begin ") && text.ends_with(" out of memory"), "{text}");
        assert!(text.contains("\n    ...\n") && text.chars().count() < LONGEST + 20);
    }
}
