//! Where the coordinator listens: on the address where the nodes meet, and nowhere else.

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, TcpListener, ToSocketAddrs, UdpSocket};

use anyhow::{Context, Result};

use crate::args::Args;
use crate::console::say;

/// Opens the port where the nodes meet; `None` if another launcher does that.
pub(crate) fn open(args: &Args) -> Result<Option<TcpListener>> {
    let (host, port) = (args.master_addr(), args.meeting_port());
    let is_host = args.fixed_node_rank().map_or(args.rdzv_conf.is_host, |rank| Some(rank == 0));
    if is_host == Some(false) {
        return Ok(None);
    }
    let cannot = || format!("cannot listen on port {port} of {host}");
    let addresses = match (host, port).to_socket_addrs() {
        // An agent keeps trying: the name may come up later.
        Err(_) if is_host.is_none() => return Ok(None),
        addresses => addresses.with_context(cannot)?,
    };
    let mut addresses: Vec<SocketAddr> = addresses.collect();
    // A node without IPv6 must find node 0 too.
    addresses.sort_by_key(SocketAddr::is_ipv6);
    let local = addresses.iter().map(SocketAddr::ip).filter(|ip| is_local(*ip));
    let local: Vec<IpAddr> = match (local.collect::<Vec<_>>(), is_host) {
        (local, _) if !local.is_empty() => local,
        (_, None) => return Ok(None),
        // Behind a gateway, the address belongs to another machine.
        _ => addresses.iter().filter_map(|address| own_address(*address)).collect(),
    };
    if host != "localhost"
        && host.parse::<IpAddr>().is_err()
        && local.iter().all(IpAddr::is_loopback)
    {
        say(format_args!(
            "{host} is {} on this host, where others cannot reach it: see /etc/hosts, or give an address",
            local[0]
        ));
    }
    let local: Vec<SocketAddr> = local.into_iter().map(|ip| (ip, port).into()).collect();
    match TcpListener::bind(&local[..]) {
        Ok(listener) => Ok(Some(listener)),
        // Perhaps by the coordinator of this job: then this node has a rank that is taken, or is not the
        // first one on this machine.
        Err(error) if error.kind() == ErrorKind::AddrInUse => Ok(None),
        Err(error) => Err(error).with_context(cannot),
    }
}

/// Whether this machine has the address.
fn is_local(ip: IpAddr) -> bool {
    UdpSocket::bind((ip, 0)).is_ok()
}

/// This machine's address on the route to another one. Nothing is sent.
fn own_address(other: SocketAddr) -> Option<IpAddr> {
    let any: SocketAddr = match other {
        SocketAddr::V4(_) => ([0; 4], 0).into(),
        SocketAddr::V6(_) => ([0; 16], 0).into(),
    };
    let socket = UdpSocket::bind(any).ok()?;
    socket.connect(other).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_of_this_machine_is_told_from_anothers() {
        assert!(is_local([127, 0, 0, 1].into()));
        // Reserved for documentation, and never assigned.
        assert!(!is_local([192, 0, 2, 1].into()));
    }

    #[test]
    fn the_own_address_towards_this_machine_is_the_same() {
        let here: SocketAddr = ([127, 0, 0, 1], 80).into();
        assert_eq!(own_address(here), Some(here.ip()));
    }
}
