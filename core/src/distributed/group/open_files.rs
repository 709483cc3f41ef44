//! The limit of a process on open files, `ulimit -n`.

use crate::{Error, Result, check};
use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// What a rank opens besides its connections: the program's own files, and the engine's.
const OWN: u64 = 16;

/// The most that a rank opens for each rank of the job: rank 0, with the store, needs the most.
const PER_RANK: u64 = 6;

/// Room for this many groups as large as the job, such as those of a mesh. Rank 0 also serves those that it is not in.
const GROUPS: u64 = 4;

/// The limit to raise to, if a job needs no more. Child processes inherit it, and some close every file up to it.
const RAISED: u64 = 4096;

/// Raises the limit if it is too low, and refuses one that a job of this size would reach.
/// At that point, the engine would wait for connections that never come, or abort the process.
pub(crate) fn expect_enough(world_size: usize) -> Result<()> {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return Ok(()) };
    let needed = OWN + PER_RANK * world_size as u64;
    if soft >= GROUPS * needed {
        return Ok(());
    }
    let expected = format_args!("at least {needed} for a world size of {world_size}");
    check(hard >= needed, "the limit on open files (ulimit -n)", hard, expected)?;
    setrlimit(Resource::RLIMIT_NOFILE, RAISED.max(GROUPS * needed).min(hard), hard)
        .map_err(|error| Error::other(format!("cannot raise the limit on open files: {error}")))
}
