//! Signals that end the job from outside, and the exit code that each stands for.

use crate::prelude::*;
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGXFSZ};
use signal_hook::flag;
use signal_hook::iterator::Signals;

/// Calls `on_signal`, on another thread, for each signal. Ranks have the default actions: exec resets them.
pub(crate) fn listen(on_signal: impl Fn(Signal) + Send + 'static) -> Result<()> {
    let mut handled = vec![SIGINT, SIGTERM, SIGQUIT];
    // Under nohup, the job is meant to survive the terminal.
    if !is_ignored(SIGHUP) {
        handled.push(SIGHUP);
    }
    // A log file that reaches `ulimit -f` is then an error, as on a full disk, and ends the log alone.
    flag::register(SIGXFSZ, Arc::default()).context("cannot catch signals")?;
    // A process that ignores this one, as its parent may have left it, learns no exit status of its children.
    flag::register(SIGCHLD, Arc::default()).context("cannot catch signals")?;
    let mut signals = Signals::new(handled).context("cannot catch signals")?;
    let forward = move || {
        signals.forever().filter_map(|number| Signal::try_from(number).ok()).for_each(on_signal);
    };
    thread::Builder::new().spawn(forward).context("cannot start a thread for signals").map(drop)
}

/// What the other nodes of a job hear of the signal that ends this one.
pub(crate) fn stopped_by(signal: Signal) -> ToCoordinator {
    let reason = format!("its launcher was stopped by {signal}");
    ToCoordinator::Stopped { reason, code: exit_code(signal) }
}

/// The exit code that a shell uses for a process killed by this signal.
pub(crate) fn exit_code(signal: Signal) -> u8 {
    128 + signal as u8
}

/// Whether this process was started with the signal ignored.
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    mask & (1 << (signal - 1)) != 0
}
