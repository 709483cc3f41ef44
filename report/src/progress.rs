//! What rank 0 shows of a training: lines, and a progress bar that stays out of logs.

use crate::println;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::fmt::Display;
use tch_parallel::distributed::ProcessGroup;

/// Prints a line on rank 0.
pub fn say(group: &ProcessGroup, line: impl Display) {
    if group.rank() == 0 {
        println!("{line}");
    }
}

/// A bar for `len` steps. It appears only on rank 0, since all ranks go at the same pace, and only
/// if stderr is a terminal, so that it never ends up in a file or a pipe.
///
/// Move it with `bar.inc(1)`, and set the text before it with `bar.set_message`.
pub fn progress_bar(len: u64, rank: usize) -> ProgressBar {
    // indicatif draws nothing if stderr is not a terminal.
    let target =
        if rank == 0 { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
    let text = "{msg} {wide_bar} {pos}/{len} [{elapsed}<{eta}, {per_sec}]";
    let style = ProgressStyle::with_template(text).unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::with_draw_target(Some(len), target).with_style(style)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::IsTerminal;

    #[test]
    fn it_shows_on_rank_0_at_a_terminal_only() {
        assert_eq!(progress_bar(10, 0).is_hidden(), !std::io::stderr().is_terminal());
        assert!(progress_bar(10, 1).is_hidden());
    }
}
