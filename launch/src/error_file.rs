//! The files in which ranks leave the reason of their failure, as under torchrun: it names one for
//! each rank in `TORCHELASTIC_ERROR_FILE`, and `torch.distributed.elastic`'s `record` writes it.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::{Duration, Instant, SystemTime};

use serde_json::Value;
use tch_parallel_contract::CULPRIT;

/// The variable that names a rank's file.
pub(crate) const VARIABLE: &str = "TORCHELASTIC_ERROR_FILE";

/// A traceback is longer than a message, but not this long.
const LONGEST: u64 = 1 << 20;

/// Before any of the files.
static START: LazyLock<Instant> = LazyLock::new(Instant::now);

/// A private directory for the files of all attempts. The guard removes it.
pub(crate) struct ErrorFiles {
    directory: Option<PathBuf>,
}

impl ErrorFiles {
    /// Makes the directory. If that is impossible, on a full disk for instance, the job runs
    /// without: only the reasons are lost.
    pub(crate) fn new() -> Self {
        LazyLock::force(&START);
        let directory = tempfile::Builder::new().prefix("launch-").tempdir();
        ErrorFiles { directory: directory.ok().map(tempfile::TempDir::keep) }
    }

    pub(crate) fn directory(&self) -> Option<&Path> {
        self.directory.as_deref()
    }

    /// The file of a rank in one attempt.
    pub(crate) fn of(&self, attempt: u32, local_rank: u16) -> Option<PathBuf> {
        Some(self.directory()?.join(format!("{attempt}.{local_rank}.json")))
    }
}

/// What a rank has left in its file.
#[derive(Debug, PartialEq)]
pub(crate) struct Reason {
    /// The error.
    pub(crate) message: String,
    /// Whether the rank only fails because another one did. Ranks that run Python never say so.
    pub(crate) is_victim: bool,
    /// When it was written.
    pub(crate) at: Instant,
}

impl Reason {
    /// Reads a rank's file; `None` if the rank has left no reason.
    pub(crate) fn read(path: &Path) -> Option<Self> {
        let file = File::open(path).ok()?;
        // The time in the file is in whole seconds.
        let modified = file.metadata().ok()?.modified().ok()?;
        let (now, age) = (Instant::now(), SystemTime::now().duration_since(modified));
        let mut text = Vec::new();
        file.take(LONGEST).read_to_end(&mut text).ok()?;
        let (message, is_victim) = parse(&text)?;
        let at = now.checked_sub(age.unwrap_or_default()).unwrap_or(now);
        // Files of one tick of the system's clock have one time, though two clocks were read for each.
        let uneven = at.saturating_duration_since(*START).subsec_nanos() % 1_000_000;
        let at = at.checked_sub(Duration::from_nanos(uneven.into())).unwrap_or(at);
        Some(Reason { message, is_victim, at })
    }
}

/// The message, and whether its rank says that another one is at fault.
fn parse(text: &[u8]) -> Option<(String, bool)> {
    let content: Value = serde_json::from_slice(text).ok()?;
    let content = content.get("message")?;
    let message = content.as_str().or_else(|| content.get("message")?.as_str())?.trim();
    let is_victim = content.pointer(&format!("/extraInfo/{CULPRIT}")).is_some();
    (!message.is_empty()).then(|| (message.to_owned(), is_victim))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(text: &str) -> Option<(String, bool)> {
        parse(text.as_bytes())
    }

    #[test]
    fn the_reason_is_what_python_records() {
        let text = r#"{"message": {"message": "ValueError: no data\n", "extraInfo":
            {"py_callstack": "Traceback ...", "timestamp": "1700000000"}}}"#;
        assert_eq!(message(text), Some(("ValueError: no data".into(), false)));
    }

    #[test]
    fn a_victim_names_its_culprit() {
        let text = r#"{"message": {"message": "lost", "extraInfo":
            {"py_callstack": "lost", "timestamp": "1", "culprit": "rank 1 has ended"}}}"#;
        assert_eq!(message(text), Some(("lost".into(), true)));
    }

    #[test]
    fn other_programs_may_write_a_plain_message() {
        assert_eq!(message(r#"{"message": "boom"}"#), Some(("boom".into(), false)));
    }

    #[test]
    fn what_is_no_message_is_no_reason() {
        for text in ["", "{", "[]", "{}", r#"{"message": 7}"#, r#"{"message": " "}"#, "\"x\""] {
            assert_eq!(message(text), None, "{text}");
        }
    }
}
