//! The port on which rank 0 listens. launch reserves it without a race, though it does not know the program.

use crate::args::Args;
use anyhow::{Context, Result, bail};
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, SockaddrStorage, bind, setsockopt, socket, sockopt,
};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::{io, io::ErrorKind, os::fd::AsRawFd, os::fd::OwnedFd};

/// Reserves a free port for rank 0 for as long as the socket lives. It is bound, but does not listen: Linux never hands
/// out the port as an ephemeral port then, but a program that names it and sets SO_REUSEADDR, as servers do, can bind it
/// too. Whichever listens first is the only one that can.
pub(crate) fn reserve() -> Result<(u16, OwnedFd)> {
    // An IPv6 socket covers IPv4 too, but some machines lack IPv6.
    let reserved = reserve_on(Ipv6Addr::UNSPECIFIED.into())
        .or_else(|_| reserve_on(Ipv4Addr::UNSPECIFIED.into()));
    reserved.context("cannot reserve a free port for rank 0")
}

fn reserve_on(address: IpAddr) -> io::Result<(u16, OwnedFd)> {
    // `local_addr` also works on a socket that does not listen.
    let socket = TcpListener::from(bound(SocketAddr::new(address, 0))?);
    Ok((socket.local_addr()?.port(), socket.into()))
}

/// A socket bound to this address. Others can bind it too if they set SO_REUSEADDR, until one listens.
pub(crate) fn bound(address: SocketAddr) -> nix::Result<OwnedFd> {
    let family = if address.is_ipv6() { AddressFamily::Inet6 } else { AddressFamily::Inet };
    let socket = socket(family, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
    setsockopt(&socket, sockopt::ReuseAddr, &true)?;
    if address.is_ipv6() {
        // The system's default can differ.
        setsockopt(&socket, sockopt::Ipv6V6Only, &false)?;
    }
    bind(socket.as_raw_fd(), &SockaddrStorage::from(address))?;
    Ok(socket)
}

/// Refuses, before any rank of a job of one node starts, an address on which rank 0 could not listen.
pub(crate) fn check(args: &Args) -> Result<()> {
    let (addr, fixed) = (args.master_addr(), args.fixed_port());
    match (TcpListener::bind((addr, fixed.unwrap_or(0))), fixed) {
        (Err(error), Some(port)) if error.kind() == ErrorKind::AddrInUse => bail!(
            "port {port} on {addr} is already in use: choose another, or omit it to get a free one"
        ),
        (Err(error), None) => Err(error).with_context(|| {
            format!("cannot listen on {addr}: --master-addr must be an address of this machine, unless --master-port is set too")
        }),
        // Rank 0 reports whatever else is wrong with the address.
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_without_ipv6_gets_a_port_that_one_server_can_open() {
        let (port, _reservation) = reserve_on(Ipv4Addr::UNSPECIFIED.into()).unwrap();
        let server = TcpListener::bind(("127.0.0.1", port));
        assert!(server.is_ok(), "{server:?}");
        assert!(TcpListener::bind(("127.0.0.1", port)).is_err());
    }
}
