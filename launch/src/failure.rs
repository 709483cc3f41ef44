//! What the failure of a rank is: what the launchers of a job tell each other, and print.

use std::cmp::Reverse;
use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The longest explanation that is sent to other nodes, in characters.
const LONGEST: usize = 5000;

/// The other ranks may notice that a process was killed, and report it, before the launcher does:
/// the kernel first closes its connections.
pub(crate) const NOTICED_BEFORE: Duration = Duration::from_millis(50);

/// How a rank failed.
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
    pub(crate) ending: String,
    /// The reason, as far as it is known.
    pub(crate) explanation: String,
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

    /// Whether another program has the port on which this one wanted to listen.
    pub(crate) fn port_is_taken(&self) -> bool {
        let explanation = self.explanation.to_lowercase();
        explanation.contains("eaddrinuse") || explanation.contains("address already in use")
    }
}

/// `rank 1 (pid 4711) exited with code 1: cannot write model.safetensors`
impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Failure { rank, pid, ending, explanation, .. } = self;
        write!(f, "rank {rank} (pid {pid}) {ending}{explanation}")
    }
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
