//! The launcher's own stdout and stderr. Ranks and the launcher write there, a whole line at a time.

use std::{fmt::Display, io::Write};

#[derive(Clone, Copy)]
pub(crate) enum Console {
    Stdout,
    Stderr,
}

impl Console {
    /// Writes a line in one go, so that none mix. A reader that has gone, as after `| head`, must not end the job.
    pub(crate) fn write(self, line: &[u8]) {
        let _ = match self {
            Console::Stdout => {
                let mut stdout = std::io::stdout().lock();
                stdout.write_all(line).and_then(|()| stdout.flush())
            }
            Console::Stderr => std::io::stderr().lock().write_all(line),
        };
    }
}

/// Prints a message of the launcher. `eprintln!` would panic if stderr is gone, but the ranks must still be ended.
pub(crate) fn say(message: impl Display) {
    Console::Stderr.write(format!("launch: {message}\n").as_bytes());
}
