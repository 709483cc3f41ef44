//! The report of a failed job, and the exit code that it means.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::console::say;
use crate::rank::{End, Rank};

/// How many of the ranks that failed later are listed one by one.
const LISTED: usize = 8;

/// Names the rank that failed first, with its last lines, then the ranks that failed after it.
/// Returns the launcher's exit code. `reserved` is whether launch reserved the port for rank 0.
pub(crate) fn failure(ranks: &[Rank], reserved: bool) -> u8 {
    let mut failed: Vec<(&Rank, End)> = ranks
        .iter()
        .filter_map(|rank| Some((rank, rank.end?)))
        .filter(|(_, end)| !end.status.success())
        .collect();
    failed.sort_by_key(|(_, end)| end.at);
    let Some(((first, end), followers)) = failed.split_first() else { return 1 };

    let lines = first.output.last_lines();
    let full_log = match &first.output.stderr_log {
        Some(log) => format!(" (all of stderr in {})", log.display()),
        None => String::new(),
    };
    let tail = match lines.as_deref() {
        None => "; its messages are above".to_owned(),
        Some([]) => "; it wrote nothing to stderr".to_owned(),
        Some(lines) => format!("; its last lines{full_log}:\n    {}", lines.join("\n    ")),
    };
    say(format_args!("rank {} (pid {}) {}{tail}", first.rank, first.pid, ending(end.status)));

    if first.rank == 0 && reserved && lines.is_some_and(|lines| port_is_taken(&lines)) {
        say(
            "launch reserves the port for rank 0: a program that binds it without SO_REUSEADDR needs --master-port",
        );
    }
    if !followers.is_empty() {
        let mut listed: Vec<String> = followers
            .iter()
            .take(LISTED)
            .map(|(rank, end)| format!("rank {} {}", rank.rank, ending(end.status)))
            .collect();
        if followers.len() > LISTED {
            listed.push(format!("{} more failed", followers.len() - LISTED));
        }
        say(format_args!("after that, {}", listed.join(", ")));
    }
    exit_code(end.status)
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

fn port_is_taken(lines: &[String]) -> bool {
    let taken = |line: &String| {
        let line = line.to_lowercase();
        line.contains("eaddrinuse") || line.contains("address already in use")
    };
    lines.iter().any(taken)
}
