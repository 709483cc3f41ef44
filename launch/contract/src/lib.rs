//! What the launcher and the programs that it starts agree on, beyond torchrun's environment variables.

#![deny(missing_docs)]

use std::time::Duration;

mod gpus;

pub use gpus::gpus;

/// How long the launcher lets the other ranks run on after a failure, so that each can say what it
/// knows of it: their own messages explain more than a SIGTERM.
pub const NOTICE: Duration = Duration::from_secs(1);

/// The variable that names the Unix socket on which the launcher tells a rank its place in a job whose ranks come and
/// go. A rank that connects takes part. It then reads one JSON value a line: `{"place": …}` with `generation`, a number
/// that grows; `is_loss`, whether a rank of the last generation is gone; and `variables`, the environment of its new
/// place. It writes `broken G` if the group of generation G has failed, and `finished G` once it has finished in that;
/// then it waits for another place, or for `"leave"`: all have finished, and from then on no rank is replaced.
pub const ELASTIC: &str = "TCH_PARALLEL_ELASTIC";

/// The variable in which whoever starts ranks may hand the store's listening socket to rank 0, as the
/// number of a file descriptor.
pub const LISTEN_FD: &str = "TCH_PARALLEL_MASTER_LISTEN_FD";

/// In the file that `TORCHELASTIC_ERROR_FILE` names, the key of `extraInfo` that says of a rank that it
/// has only failed because of another one, and what is known of that.
pub const CULPRIT: &str = "culprit";
