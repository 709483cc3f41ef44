//! `cargo xtask soak`: the long series of faults over several hosts.

use crate::{prelude::*, setup};

/// Builds the programs, and lets `tests/src/bin/soak.rs` put them through every fault of its table.
pub(crate) fn run(workspace: &Workspace, args: &[OsString]) -> Result<()> {
    setup::ensure(workspace, setup::Level::Full)?;
    let build = ["build", "--release", "--workspace", "--bins", "--examples"];
    command::run(workspace.cargo().args(build))?;
    let mut soak = Command::new(workspace.release_executable("soak"));
    command::forget_this_package(&mut soak);
    // One line is about torchrun, which is in the environment that contains libtorch.
    command::run(soak.env("LIBTORCH", &workspace.libtorch).args(args))
}
