//! Where rank 0 listens, without a race for the port: launch binds it and rank 0 inherits it.

use std::io::ErrorKind;
use std::net::TcpListener;
use std::os::fd::{AsRawFd, RawFd};

use anyhow::{Context, Result, bail};
use nix::fcntl::{FcntlArg, FdFlag, fcntl};

use crate::args::Args;

/// The master's port, and its socket where launch has bound it.
pub(crate) struct Master {
    /// MASTER_PORT.
    pub(crate) port: u16,
    /// A free port is only certain while somebody holds it, so launch keeps it open until rank 0
    /// does. `None` with a fixed port: rank 0 then binds it by itself.
    pub(crate) listener: Option<TcpListener>,
}

impl Master {
    /// Binds a free port, unless the port is fixed.
    pub(crate) fn open(args: &Args) -> Result<Self> {
        if let Some(port) = args.fixed_port() {
            return Ok(Master { port, listener: None });
        }
        let addr = args.master_addr();
        let listener = TcpListener::bind((addr, 0)).with_context(|| {
            format!("cannot listen on {addr}: --master-addr must be an address of this machine, or be given with --master-port")
        })?;
        Ok(Master { port: listener.local_addr()?.port(), listener: Some(listener) })
    }
}

/// Refuses a fixed port that another program holds, before any rank starts.
pub(crate) fn check_port(args: &Args) -> Result<()> {
    let (addr, Some(port)) = (args.master_addr(), args.fixed_port()) else { return Ok(()) };
    if args.node_rank != 0 {
        return Ok(());
    }
    match TcpListener::bind((addr, port)) {
        Err(error) if error.kind() == ErrorKind::AddrInUse => bail!(
            "port {port} on {addr} is taken by another program: give another --master-port{}",
            if args.nnodes == 1 { ", or none to get a free one" } else { " to every node" }
        ),
        // Whatever else is wrong with the address, rank 0 meets it and says so.
        _ => Ok(()),
    }
}

/// Runs `spawn` so that the child which it starts inherits the socket, under the number given.
/// Safe only because launch starts processes from one thread.
pub(crate) fn with_inheritable<T>(
    listener: &TcpListener,
    spawn: impl FnOnce(RawFd) -> Result<T>,
) -> Result<T> {
    fcntl(listener, FcntlArg::F_SETFD(FdFlag::empty()))?;
    let child = spawn(listener.as_raw_fd());
    fcntl(listener, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))?;
    child
}
