//! The files in which ranks leave the reason of their failure, named by `TORCHELASTIC_ERROR_FILE` as under torchrun.

use crate::prelude::*;
use serde_json::Value;
use std::time::SystemTime;
use tch_parallel_contract::CULPRIT;

/// The variable that names a rank's file.
pub(crate) const VARIABLE: &str = "TORCHELASTIC_ERROR_FILE";

/// A traceback is longer than a message, but not this long.
const LONGEST: u64 = 1 << 20;

/// Which instant a time of the system's clock is, for all ranks of one attempt: two files of one time have one instant.
#[derive(Clone, Default)]
pub(crate) struct Clock(Rc<OnceCell<(Instant, SystemTime)>>);

impl Clock {
    fn instant(&self, time: SystemTime) -> Instant {
        // Not before the first rank fails: by then the system's clock may have been set.
        let (now, here) = *self.0.get_or_init(|| (Instant::now(), SystemTime::now()));
        let at = match here.duration_since(time) {
            Ok(age) => now.checked_sub(age),
            Err(later) => now.checked_add(later.duration()),
        };
        at.unwrap_or(now)
    }
}

/// Makes a private directory, which the guard removes. Without one, on a full disk, only reasons are lost.
pub(crate) fn directory() -> Option<PathBuf> {
    tempfile::Builder::new().prefix("launch-").tempdir().ok().map(tempfile::TempDir::keep)
}

#[derive(Debug, PartialEq)]
pub(crate) struct Reason {
    pub(crate) message: String,
    /// Whether the rank only fails because another one did. Ranks that run Python never say so.
    pub(crate) is_victim: bool,
    pub(crate) at: Instant,
}

impl Reason {
    /// Reads a rank's file; `None` if the rank has left no reason.
    pub(crate) fn read(path: &Path, clock: &Clock) -> Option<Self> {
        let file = File::open(path).ok()?;
        // The time in the file is in whole seconds.
        let at = clock.instant(file.metadata().ok()?.modified().ok()?);
        let mut text = Vec::new();
        file.take(LONGEST).read_to_end(&mut text).ok()?;
        let (message, is_victim) = parse(&text)?;
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

    #[test]
    fn two_reasons_of_one_time_have_one_instant_whenever_they_are_read() {
        let time = SystemTime::now();
        let left = |text: &str| {
            let mut file = tempfile::NamedTempFile::new().unwrap();
            file.write_all(text.as_bytes()).unwrap();
            file.as_file().set_modified(time).unwrap();
            file
        };
        let files = [r#"{"message": "a"}"#, r#"{"message": "b"}"#].map(left);
        let clock = Clock::default();
        for _ in 0..10_000 {
            let reasons = files.each_ref().map(|file| Reason::read(file.path(), &clock).unwrap());
            assert_eq!(reasons[0].at, reasons[1].at);
        }
    }

    #[test]
    fn a_reason_is_what_python_records_or_a_plain_message_and_a_victim_names_its_culprit() {
        let recorded = r#"{"message": {"message": "ValueError: no data\n", "extraInfo":
            {"py_callstack": "Traceback ...", "timestamp": "1700000000"}}}"#;
        let victim = r#"{"message": {"message": "lost", "extraInfo":
            {"py_callstack": "lost", "timestamp": "1", "culprit": "rank 1 has ended"}}}"#;
        for (text, message, is_victim) in [
            (recorded, "ValueError: no data", false),
            (victim, "lost", true),
            (r#"{"message": "boom"}"#, "boom", false),
        ] {
            assert_eq!(parse(text.as_bytes()), Some((message.to_owned(), is_victim)));
        }
    }

    #[test]
    fn what_is_no_message_is_no_reason() {
        for text in ["", "{", "[]", "{}", r#"{"message": 7}"#, r#"{"message": " "}"#, "\"x\""] {
            assert_eq!(parse(text.as_bytes()), None, "{text}");
        }
    }
}
