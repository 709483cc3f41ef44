//! Where the coordinator listens: on the address where the nodes meet, and nowhere else.

use crate::{port::bound, prelude::*};
use nix::{errno::Errno, sys::socket::Backlog, sys::socket::listen};
use std::net::{IpAddr, SocketAddr, TcpListener, ToSocketAddrs, UdpSocket};
use tch_parallel_contract::own_address;

/// How long to wait for a host's name to resolve.
const NAME_TIMEOUT: Duration = Duration::from_secs(60);
/// Between two tries to resolve it.
const NAME_RETRY: Duration = Duration::from_millis(200);

pub(crate) enum Meeting {
    /// This launcher.
    Here(TcpListener),
    /// This launcher should, but the port is taken: perhaps by this job's coordinator, if another node was first.
    Taken,
    /// Another launcher.
    Elsewhere,
}

/// Opens the port where the nodes meet, unless another launcher does that.
pub(crate) fn open(args: &Args) -> Result<Meeting> {
    let (host, port) = (args.master_addr(), args.meeting_port());
    let is_host = is_host(args)?;
    if is_host == Some(false) {
        return Ok(Meeting::Elsewhere);
    }
    let cannot = || format!("cannot listen on port {port} of {host}");
    let addresses = match (host, port).to_socket_addrs() {
        // An agent keeps trying: the name may come up later.
        Err(_) if is_host.is_none() => return Ok(Meeting::Elsewhere),
        addresses => addresses.with_context(cannot)?,
    };
    let mut addresses: Vec<SocketAddr> = addresses.collect();
    // A node without IPv6 must find node 0 too.
    addresses.sort_by_key(SocketAddr::is_ipv6);
    let local = addresses.iter().map(SocketAddr::ip).filter(|ip| is_local(*ip));
    let local: Vec<IpAddr> = match (local.collect::<Vec<_>>(), is_host) {
        (local, _) if !local.is_empty() => local,
        (_, None) => return Ok(Meeting::Elsewhere),
        // Behind a gateway, the address belongs to another machine.
        _ => addresses.iter().filter_map(|address| own_address(*address).ok()).collect(),
    };
    ensure!(
        !local.is_empty(),
        "{host} is not an address of this machine, and there is no route to it"
    );
    let is_name = host != "localhost" && host.parse::<IpAddr>().is_err();
    if is_name && local.iter().all(IpAddr::is_loopback) {
        let problem = format!(
            "{host} is {} on this host, where others cannot reach it: see /etc/hosts, or give an address",
            local[0]
        );
        ensure!(args.fixed_node_rank().is_none(), problem);
        say(problem);
    }
    let nowhere = Err(Errno::EADDRNOTAVAIL);
    let listening =
        local.into_iter().fold(nowhere, |found, ip| found.or_else(|_| claim((ip, port).into())));
    match listening {
        Ok(listener) => Ok(Meeting::Here(listener)),
        Err(Errno::EADDRINUSE) if is_host.is_some() => Ok(Meeting::Taken),
        Err(Errno::EADDRINUSE) => Ok(Meeting::Elsewhere),
        Err(error) => Err(error).with_context(cannot),
    }
}

/// Whether this launcher should open the port, if that is known without looking at this machine's addresses.
fn is_host(args: &Args) -> Result<Option<bool>> {
    if let Some(rank) = args.fixed_node_rank() {
        return Ok(Some(rank == 0));
    }
    let own = nix::unistd::gethostname().context("cannot find out the name of this host")?;
    let is_own = same_host(args.master_addr(), &own.to_string_lossy());
    Ok(args.rdzv_conf.is_host.or(is_own.then_some(true)))
}

/// If the nodes meet on this host, waits until its name resolves: a Kubernetes pod starts before its name resolves.
pub(crate) fn wait_for_name(args: &Args) -> Result<()> {
    let start = Instant::now();
    let host = args.master_addr();
    let resolves = || (host, 0).to_socket_addrs().is_ok();
    if !args.several_nodes() || is_host(args)? != Some(true) || resolves() {
        return Ok(());
    }
    let seconds = NAME_TIMEOUT.as_secs();
    say(format!("{host} does not resolve yet: waiting for up to {seconds} s"));
    while !resolves() && start.elapsed() < NAME_TIMEOUT {
        thread::sleep(NAME_RETRY);
    }
    Ok(())
}

/// Listens on the address, unless another socket already does.
fn claim(address: SocketAddr) -> nix::Result<TcpListener> {
    loop {
        let socket = bound(address)?;
        match listen(&socket, Backlog::MAXCONN) {
            Ok(()) => return Ok(socket.into()),
            // Two that start to listen at the same instant can both fail. Once one listens, the other cannot bind.
            Err(Errno::EADDRINUSE) => {}
            Err(error) => return Err(error),
        }
    }
}

fn same_host(one: &str, other: &str) -> bool {
    let first_part = |name: &str| name.split('.').next().map(str::to_ascii_lowercase);
    match one.contains('.') && other.contains('.') {
        true => one.eq_ignore_ascii_case(other),
        false => first_part(one) == first_part(other),
    }
}

fn is_local(ip: IpAddr) -> bool {
    UdpSocket::bind((ip, 0)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;

    #[test]
    fn of_launchers_that_start_at_the_same_instant_one_listens() {
        const LAUNCHERS: usize = 4;
        let socket = bound(([127, 0, 0, 1], 0).into()).unwrap();
        let address = TcpListener::from(socket.try_clone().unwrap()).local_addr().unwrap();
        for _ in 0..1_000 {
            let start = Barrier::new(LAUNCHERS);
            let claim = || (start.wait(), claim(address)).1;
            let claims = thread::scope(|scope| {
                let launchers = [(); LAUNCHERS].map(|()| scope.spawn(claim));
                launchers.map(|launcher| launcher.join().unwrap())
            });
            assert_eq!(claims.iter().filter(|claim| claim.is_ok()).count(), 1, "{claims:?}");
        }
    }

    #[test]
    fn an_address_of_this_machine_is_told_from_anothers_and_is_the_own_one_towards_it() {
        assert!(is_local([127, 0, 0, 1].into()));
        // Reserved for documentation, and never assigned.
        assert!(!is_local([192, 0, 2, 1].into()));
        let here: SocketAddr = ([127, 0, 0, 1], 80).into();
        assert_eq!(own_address(here).unwrap(), here.ip());
    }

    #[test]
    fn a_host_has_one_name_with_and_without_its_domain() {
        for (one, other) in [("a", "a"), ("a", "a.net"), ("a.net", "a"), ("a.net", "A.net")] {
            assert!(same_host(one, other), "{one} {other}");
        }
        for (one, other) in [("a", "b"), ("a", "ab"), ("a.net", "a.com"), ("10.0.0.1", "a")] {
            assert!(!same_host(one, other), "{one} {other}");
        }
    }
}
