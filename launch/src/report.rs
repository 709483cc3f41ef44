//! What launch says, and the exit code it ends with.

use std::fmt::Display;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::rank::{End, Rank};

/// How many ranks that failed later are told one by one.
const LISTED: usize = 8;

/// Prints a message of the launcher. A stderr that is gone must not end the launcher before it has
/// ended the ranks, as `eprintln!` would.
pub(crate) fn say(message: impl Display) {
    let _ = std::io::stderr().lock().write_all(format!("launch: {message}\n").as_bytes());
}

/// Names the rank that failed first, with its last lines, and those that followed it. Returns the
/// exit code that the first failure means. `reserved`: whether launch kept the port for rank 0.
pub(crate) fn failure(ranks: &[Rank], reserved: bool) -> u8 {
    let mut failed: Vec<(&Rank, End)> = ranks
        .iter()
        .filter_map(|rank| Some((rank, rank.end?)))
        .filter(|(_, end)| !end.status.success())
        .collect();
    failed.sort_by_key(|(_, end)| end.at);
    let Some(((first, end), followers)) = failed.split_first() else { return 1 };

    let lines = first.output.last_lines();
    let where_else = match &first.output.stderr_log {
        Some(log) => format!(" (all of them in {})", log.display()),
        None => String::new(),
    };
    let tail = match lines.as_deref() {
        None => "; its messages are above".to_owned(),
        Some([]) => "; it wrote nothing to stderr".to_owned(),
        Some(lines) => format!("; its last lines{where_else}:\n    {}", lines.join("\n    ")),
    };
    say(format_args!("rank {} (pid {}) {}{tail}", first.rank, first.pid, ending(end.status)));

    if first.rank == 0 && reserved && lines.is_some_and(|lines| port_is_taken(&lines)) {
        say(
            "launch keeps the port for rank 0: a program that opens it without SO_REUSEADDR needs --master-port",
        );
    }
    if !followers.is_empty() {
        let mut told: Vec<String> = followers
            .iter()
            .take(LISTED)
            .map(|(rank, end)| format!("rank {} {}", rank.rank, ending(end.status)))
            .collect();
        if followers.len() > LISTED {
            told.push(format!("{} more failed", followers.len() - LISTED));
        }
        say(format_args!("after that {}", told.join(", ")));
    }
    exit_code(end.status)
}

/// Says which ranks did not act on a signal in time.
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

/// A shell's exit code for a death by signal.
pub(crate) fn signal_code(signal: Signal) -> u8 {
    128 + signal as u8
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

fn port_is_taken(lines: &[String]) -> bool {
    let taken = |line: &String| {
        let line = line.to_lowercase();
        line.contains("eaddrinuse") || line.contains("address already in use")
    };
    lines.iter().any(taken)
}
