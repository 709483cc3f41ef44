//! The signals that end a job from outside.

use std::sync::mpsc::Sender;
use std::thread;

use anyhow::{Context, Result};
use nix::sys::signal::Signal;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::supervisor::Event;

/// Turns the signals into events. The ranks still start with their default action: exec resets it.
pub(crate) fn listen(events: Sender<Event>) -> Result<()> {
    let mut handled = vec![SIGINT, SIGTERM, SIGQUIT];
    // Under nohup the job is meant to survive the end of the terminal.
    if !is_ignored(SIGHUP) {
        handled.push(SIGHUP);
    }
    let mut signals = Signals::new(handled).context("cannot catch signals")?;
    thread::spawn(move || {
        for signal in signals.forever().filter_map(|number| Signal::try_from(number).ok()) {
            if events.send(Event::Signal(signal)).is_err() {
                break;
            }
        }
    });
    Ok(())
}

/// Whether this process was started with the signal ignored.
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    mask & (1 << (signal - 1)) != 0
}
