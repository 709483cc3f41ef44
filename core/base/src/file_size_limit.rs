//! The limit of a process on the size of files, `ulimit -f`.

use signal_hook::consts::SIGXFSZ;
use std::sync::{Arc, Once};

/// From now on, a write beyond the limit fails, as on a full disk. By default, the signal SIGXFSZ would end the process
/// there, and half a file would stay behind. Python does the same when it starts.
pub fn is_an_error() {
    static ONCE: Once = Once::new();
    // Whoever catches the signal prevents its default action. If that is not possible, nothing changes.
    ONCE.call_once(|| drop(signal_hook::flag::register(SIGXFSZ, Arc::default())));
}
