//! How ranks meet: the store that rank 0 serves, and the addresses on which ranks listen.

use super::env::Env;
use crate::{Error, Result};
use c10d_sys::{GlooAddress, Store, TcpStoreOptions};
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};
use tch_parallel_contract::own_address;

/// How long to wait between two attempts to reach a store that is not listening yet.
const RETRY: Duration = Duration::from_millis(20);

/// How long one attempt may take: if a host does not answer at all, it would take minutes. The system repeats a request
/// that is lost after 1 s and after 3 s.
const ATTEMPT: Duration = Duration::from_secs(5);

/// How long a host name may take to resolve: in a cluster it often appears after the host.
pub(crate) const NAMED: Duration = Duration::from_secs(60);

/// How long to wait between two lookups, which a name server answers.
const ASK: Duration = Duration::from_millis(500);

/// Serves or joins the store of the job, and claims this process's rank there.
pub(crate) fn store(env: &Env, timeout: Duration) -> Result<Store> {
    let start = Instant::now();
    let (host, port) = (&env.master_addr, env.master_port);
    let master = master(env, timeout.min(NAMED))?;
    let (server, listener) = if env.rank == 0 && !env.agent_store {
        (master, Some(listener(env, master)?))
    } else {
        let server = await_server(host, port, start, timeout).map_err(|source| {
            let cause =
                "rank 0 never started, or MASTER_ADDR and MASTER_PORT differ between the ranks";
            let message = format!("{source}, for {timeout:?}; {cause}");
            failed(env, format!("reach rank 0 at {host}:{port}"), &message)
        })?;
        (server, None)
    };
    let tcp = TcpStoreOptions { server, world_size: env.world_size, listener, timeout };
    let mut store = Store::tcp(tcp).map_err(|error| {
        failed(env, format!("join the store at {host}:{port}"), error.message())
    })?;
    // Python's ranks expect no prefix; torchrun's store outlives an attempt.
    if env.agent_store && env.restart_count > 0 {
        let attempt = store.with_prefix(&format!("attempt_{}", env.restart_count));
        store = attempt.map_err(|error| failed(env, "join the store".into(), error.message()))?;
    }

    let ours = store.with_prefix("tch_parallel");
    let claims = ours.and_then(|ours| ours.add(&format!("claims/{}", env.rank), 1));
    let claims = claims.map_err(|error| failed(env, "claim its rank".into(), error.message()))?;
    if claims > 1 {
        let message = "another process has the same RANK, or had it; every process of a job needs one of its own, \
                       and one that has ended cannot rejoin";
        return Err(failed(env, "claim its rank".into(), message));
    }
    Ok(store)
}

/// Serves a store at this host and port, or joins it once it is served. Returns where.
pub(crate) fn tcp(
    host: &str,
    port: u16,
    is_master: bool,
    timeout: Duration,
) -> io::Result<(Store, SocketAddr)> {
    let (server, listener) = if is_master {
        let address = retried(Instant::now(), timeout.min(NAMED), ASK, || look_up(host, port))?;
        (address, Some(bound(address)?))
    } else {
        (await_server(host, port, Instant::now(), timeout)?, None)
    };
    // The world size only matters to a server that waits.
    let tcp = TcpStoreOptions { server, world_size: 1, listener, timeout };
    Ok((Store::tcp(tcp).map_err(io::Error::other)?, server))
}

/// The address on which gloo listens: the interfaces that PyTorch's variable names, else this host's address in the
/// network of the store's server, which `server` looks up. On a single host that is the loopback address.
pub(crate) fn gloo_address(server: impl FnOnce() -> Result<SocketAddr>) -> Result<GlooAddress> {
    if let Some(interface) = std::env::var("GLOO_SOCKET_IFNAME").ok().filter(|i| !i.is_empty()) {
        return Ok(GlooAddress::Interfaces(interface.split(',').map(str::to_owned).collect()));
    }
    let server = server()?;
    let own = own_address(server).map_err(|source| {
        let expected = format!("an address that this host can reach ({source})");
        Error::argument("the store's server", server, expected)
    })?;
    Ok(GlooAddress::Host(own.to_string()))
}

/// MASTER_ADDR and MASTER_PORT, resolved.
pub(crate) fn master(env: &Env, limit: Duration) -> Result<SocketAddr> {
    let look_up = || look_up(&env.master_addr, env.master_port);
    let address = retried(Instant::now(), limit, ASK, look_up).map_err(|source| {
        let expected = "expected a host name that this host can resolve, or an address";
        let operation = format!("find the host MASTER_ADDR={}", env.master_addr);
        failed(env, operation, &format!("{source}, after {limit:?}; {expected}"))
    })?;
    // Debian, for one, maps a host's own name to an address that only it can reach. A literal 127.0.0.1 is intended.
    let is_name = env.master_addr != "localhost" && env.master_addr.parse::<IpAddr>().is_err();
    if is_name && address.ip().is_loopback() && env.local_world_size < env.world_size {
        let operation = format!("meet the ranks of other hosts at MASTER_ADDR={}", env.master_addr);
        let instead = "which other hosts cannot reach; give rank 0's address in their network";
        return Err(failed(env, operation, &format!("that is {} here, {instead}", address.ip())));
    }
    Ok(address)
}

fn look_up(host: &str, port: u16) -> io::Result<SocketAddr> {
    let addresses = (host, port).to_socket_addrs()?;
    // gloo and the store work best with IPv4, to which "localhost" resolves as well.
    addresses.min_by_key(SocketAddr::is_ipv6).ok_or(ErrorKind::NotFound.into())
}

/// Repeats an attempt until it succeeds, as PyTorch's store client does, or the time since `start` is over.
fn retried<T>(
    start: Instant,
    limit: Duration,
    pause: Duration,
    mut attempt: impl FnMut() -> io::Result<T>,
) -> io::Result<T> {
    loop {
        match attempt() {
            Err(_) if start.elapsed() < limit => {
                std::thread::sleep(pause.min(limit.saturating_sub(start.elapsed())));
            }
            answer => return answer,
        }
    }
}

fn bound(server: SocketAddr) -> io::Result<TcpListener> {
    TcpListener::bind(server).or_else(|error| match error.kind() {
        // It may be the address of a gateway in front of this host.
        ErrorKind::AddrNotAvailable => {
            TcpListener::bind((own_address(server).map_err(|_| error)?, server.port()))
        }
        _ => Err(error),
    })
}

/// The socket on which rank 0 serves the store: inherited, so that no other program can take the port, or bound here.
fn listener(env: &Env, master: SocketAddr) -> Result<TcpListener> {
    let inherited = env.listen_fd.and_then(|fd| c10d_sys::inherited_listener(fd).ok());
    // A socket for another port belongs to a job that this one was started from.
    let ours = |listener: &TcpListener| {
        listener.local_addr().is_ok_and(|address| address.port() == env.master_port)
    };
    if let Some(listener) = inherited.filter(ours) {
        return Ok(listener);
    }
    bound(master).map_err(|source| {
        let hint = match source.kind() {
            ErrorKind::AddrInUse => {
                "; another program uses the port: choose another MASTER_PORT, or let the launcher choose one"
            }
            _ => "",
        };
        failed(env, format!("listen on {master}"), &format!("{source}{hint}"))
    })
}

/// Returns where the store listens, once it does; libtorch's client prints backtraces. The timeout began at `start`.
fn await_server(host: &str, port: u16, start: Instant, limit: Duration) -> io::Result<SocketAddr> {
    retried(start, limit, RETRY, || {
        // Resolved anew: a host that comes back may have another address.
        let server = look_up(host, port)?;
        TcpStream::connect_timeout(&server, ATTEMPT.min(limit)).map(|_| server)
    })
}

pub(crate) fn failed(env: &Env, operation: String, message: &str) -> Error {
    let Env { rank, world_size, .. } = *env;
    Error::Rendezvous { rank, world_size, operation, message: message.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_becomes_known_is_waited_for() {
        let mut asked = 0;
        let answer = retried(Instant::now(), Duration::from_secs(60), ASK, || {
            asked += 1;
            if asked < 3 { Err(ErrorKind::NotFound.into()) } else { Ok(asked) }
        });
        assert_eq!(answer.unwrap(), 3);
    }
}
