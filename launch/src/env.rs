//! The environment of a rank, as torchrun sets it.

use std::process::Command;

use crate::args::Args;

/// What only another launcher around this one can have set. A rank that believed it would look for
/// that launcher's store or socket.
const FOREIGN: [&str; 3] =
    ["TCH_PARALLEL_MASTER_LISTEN_FD", "TORCHELASTIC_USE_AGENT_STORE", "TORCHELASTIC_ERROR_FILE"];

/// Sets on `command` what tells a program which rank it is and where rank 0 listens.
pub(crate) fn set_rank(
    command: &mut Command,
    args: &Args,
    attempt: u32,
    local_rank: u16,
    port: u16,
) {
    let rank = args.rank(local_rank).to_string();
    let world_size = args.world_size().to_string();
    for name in FOREIGN {
        command.env_remove(name);
    }
    command
        .env("RANK", &rank)
        .env("LOCAL_RANK", local_rank.to_string())
        .env("WORLD_SIZE", &world_size)
        .env("LOCAL_WORLD_SIZE", args.nproc_per_node.to_string())
        .env("GROUP_RANK", args.node_rank.to_string())
        .env("GROUP_WORLD_SIZE", args.nnodes.to_string())
        .env("ROLE_NAME", &args.role)
        .env("ROLE_RANK", &rank)
        .env("ROLE_WORLD_SIZE", &world_size)
        .env("MASTER_ADDR", args.master_addr())
        .env("MASTER_PORT", port.to_string())
        .env("TORCHELASTIC_RESTART_COUNT", attempt.to_string())
        .env("TORCHELASTIC_MAX_RESTARTS", args.max_restarts.to_string())
        .env("TORCHELASTIC_RUN_ID", &args.rdzv_id);
    // Several ranks that each start a thread per core would slow each other down.
    if args.nproc_per_node > 1 && std::env::var_os("OMP_NUM_THREADS").is_none() {
        command.env("OMP_NUM_THREADS", "1");
    }
}
