//! What the failure of a rank is: what the launchers of a job tell each other, and print.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::{fmt, time::Duration, time::Instant};

/// The longest explanation that is sent to other nodes, in characters.
const LONGEST: usize = 5000;

/// Other ranks may notice a killed process before the launcher does: the kernel first closes its connections.
pub(crate) const NOTICED_BEFORE: Duration = Duration::from_millis(50);

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Failure {
    pub(crate) rank: u32,
    pub(crate) pid: i32,
    pub(crate) fault: Fault,
    /// When it failed. Sent as how long ago that was: nodes have different clocks.
    #[serde(rename = "age", serialize_with = "age", deserialize_with = "aged")]
    pub(crate) at: Instant,
    /// The launcher's exit code, if this rank is the one at fault.
    pub(crate) exit_code: u8,
    /// `exited with code 1`, `was killed by SIGSEGV`.
    pub(crate) ending: String,
    #[serde(serialize_with = "shortened")]
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
    #[cfg(test)]
    pub(crate) fn example(rank: u32, fault: Fault, at: Instant) -> Self {
        let (ending, explanation) = ("exited with code 3".to_owned(), ": no data".to_owned());
        Failure { rank, pid: 1, fault, at, exit_code: 3, ending, explanation }
    }

    /// Whether another program has the port on which this one wanted to listen.
    pub(crate) fn port_is_taken(&self) -> bool {
        let explanation = self.explanation.to_lowercase();
        explanation.contains("eaddrinuse") || explanation.contains("address already in use")
    }
}

fn age<S: Serializer>(at: &Instant, message: S) -> Result<S::Ok, S::Error> {
    at.elapsed().serialize(message)
}

fn aged<'de, D: Deserializer<'de>>(message: D) -> Result<Instant, D::Error> {
    let (age, now) = (Duration::deserialize(message)?, Instant::now());
    Ok(now.checked_sub(age).unwrap_or(now))
}

/// Sends what fits into a message. The end of the text, where errors stand, is kept.
fn shortened<S: Serializer>(text: &str, message: S) -> Result<S::Ok, S::Error> {
    let (count, head) = (text.chars().count(), LONGEST / 5);
    if count <= LONGEST {
        return message.serialize_str(text);
    }
    let end = text.chars().skip(count - (LONGEST - head));
    let kept = text.chars().take(head).chain("\n    ...\n    ".chars()).chain(end);
    message.serialize_str(&kept.collect::<String>())
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
        let mut failure = Failure::example(1, Fault::Own, Instant::now());
        failure.explanation = format!(": begin {} out of memory", "\u{e9}".repeat(2 * LONGEST));
        let sent = serde_json::to_string(&failure).unwrap();
        let text = serde_json::from_str::<Failure>(&sent).unwrap().explanation;
        assert!(text.starts_with(": begin ") && text.ends_with(" out of memory"), "{text}");
        assert!(text.contains("\n    ...\n") && text.chars().count() < LONGEST + 20);
    }
}
