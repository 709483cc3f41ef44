//! The port on which rank 0 listens: kept free for it, without a race, though launch does not know
//! the program.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::os::fd::{AsRawFd, OwnedFd};

use anyhow::{Context, Result, bail};
use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, SockaddrIn, SockaddrIn6, SockaddrStorage, bind, getsockname,
    setsockopt, socket, sockopt,
};

use crate::args::Args;

/// The port of one attempt to run the job.
pub(crate) struct MasterPort {
    /// MASTER_PORT.
    pub(crate) number: u16,
    /// Keeps a free port for rank 0 as long as it lives. `None` with a fixed port.
    pub(crate) reservation: Option<OwnedFd>,
}

impl MasterPort {
    /// Takes the port that the flags fix, or else reserves a free one.
    pub(crate) fn choose(args: &Args) -> Result<Self> {
        if let Some(number) = args.fixed_port() {
            return Ok(MasterPort { number, reservation: None });
        }
        // The first covers IPv4 too, but there are machines without IPv6.
        let reserved = reserve(Ipv6Addr::UNSPECIFIED.into())
            .or_else(|_| reserve(Ipv4Addr::UNSPECIFIED.into()));
        let (number, socket) = reserved.context("cannot reserve a free port for rank 0")?;
        Ok(MasterPort { number, reservation: Some(socket) })
    }
}

/// Binds a free port, without listening on it. While the socket lives, Linux gives the port to
/// nobody who asks for any free one, but does give it to a program that names it and sets
/// SO_REUSEADDR, as servers do: the one who listens first is then the only one who can.
fn reserve(address: IpAddr) -> nix::Result<(u16, OwnedFd)> {
    let family = if address.is_ipv6() { AddressFamily::Inet6 } else { AddressFamily::Inet };
    let socket = socket(family, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
    setsockopt(&socket, sockopt::ReuseAddr, &true)?;
    if address.is_ipv6() {
        // A system can have another default.
        setsockopt(&socket, sockopt::Ipv6V6Only, &false)?;
    }
    bind(socket.as_raw_fd(), &SockaddrStorage::from(SocketAddr::new(address, 0)))?;
    let bound: SockaddrStorage = getsockname(socket.as_raw_fd())?;
    let port = bound.as_sockaddr_in6().map(SockaddrIn6::port);
    let port = port.or_else(|| bound.as_sockaddr_in().map(SockaddrIn::port));
    Ok((port.ok_or(Errno::EAFNOSUPPORT)?, socket))
}

/// Refuses, before any rank starts, an address where rank 0 could not listen.
pub(crate) fn check(args: &Args) -> Result<()> {
    if args.node_rank != 0 {
        return Ok(());
    }
    let (addr, fixed) = (args.master_addr(), args.fixed_port());
    match (TcpListener::bind((addr, fixed.unwrap_or(0))), fixed) {
        (Err(error), Some(port)) if error.kind() == ErrorKind::AddrInUse => bail!(
            "port {port} on {addr} is taken by another program: give another{}",
            if args.nnodes == 1 { ", or none to get a free one" } else { " to every node" }
        ),
        (Err(error), None) => Err(error).with_context(|| {
            format!("cannot listen on {addr}: --master-addr must be an address of this machine, or be given with --master-port")
        }),
        // Whatever else is wrong with the address, rank 0 meets it and says so.
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_without_ipv6_gets_a_port_that_one_server_can_open() {
        let (port, _reservation) = reserve(Ipv4Addr::UNSPECIFIED.into()).unwrap();
        let server = TcpListener::bind(("127.0.0.1", port));
        assert!(server.is_ok(), "{server:?}");
        assert!(TcpListener::bind(("127.0.0.1", port)).is_err());
    }
}
