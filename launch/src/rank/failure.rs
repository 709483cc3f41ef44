//! How and why a rank has failed, from its exit status, the reason that it has left and its output.

use super::Rank;
use crate::failure::{Failure, Fault, NOTICED_BEFORE};
use crate::{error_file::Reason, prelude::*};
use std::os::unix::process::ExitStatusExt;

impl Rank {
    /// How the rank has failed, or is about to after it has left a reason. Its output must have been drained.
    pub(crate) fn failure(&self) -> Option<Failure> {
        let reason = self.error_file.as_ref().and_then(|(path, clock)| Reason::read(path, clock));
        let (fault, at, end) = match (&reason, self.end) {
            (_, Some(end)) if end.status.success() => return None,
            (Some(reason), end) if !self.was_signalled_by(reason.at) => {
                let fault = if reason.is_victim { Fault::Another } else { Fault::Own };
                // It may have waited for the others to learn the reason until the launcher ended it.
                (fault, reason.at, end.filter(|end| !self.was_signalled_by(end.at)))
            }
            (_, Some(end)) if self.was_signalled_by(end.at) => (Fault::Launcher, end.at, Some(end)),
            (_, Some(end)) if end.status.signal().is_some() => {
                (Fault::Own, end.at.checked_sub(NOTICED_BEFORE).unwrap_or(end.at), Some(end))
            }
            (_, Some(end)) => (Fault::Own, end.at, Some(end)),
            (_, None) => return None,
        };
        Some(Failure {
            rank: self.rank,
            pid: self.pid.as_raw(),
            fault,
            at,
            exit_code: end.map_or(1, |end| exit_code(end.status)),
            ending: end.map_or_else(|| "failed".to_owned(), |end| ending(end.status)),
            explanation: explanation(self, reason.map(|reason| reason.message)),
        })
    }
}

/// The reason that the rank has left, and its last lines if there is none or the console has not shown them.
fn explanation(rank: &Rank, reason: Option<String>) -> String {
    let log = rank.output.stderr_log.as_ref();
    let log = log.map(|log| format!(" (all of stderr in {})", log.display())).unwrap_or_default();
    let lines = match rank.output.last_lines() {
        None => "; its messages are above".to_owned(),
        Some(lines) if lines.is_empty() => "; it wrote nothing to stderr".to_owned(),
        Some(lines) => format!("; its last lines{log}:\n    {}", lines.join("\n    ")),
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
