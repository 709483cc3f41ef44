//! How ranks meet: the store that rank 0 serves, and the addresses on which ranks listen.

use super::env::Env;
use crate::{Error, Result};
use c10d_sys::{GlooAddress, Store, TcpStoreOptions};
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs, UdpSocket};
use std::time::{Duration, Instant};

/// How long to wait between two attempts to reach a store that does not listen yet.
const RETRY: Duration = Duration::from_millis(20);

/// Serves or joins the store of the job, and claims this process's rank there.
pub(super) fn store(env: &Env, timeout: Duration) -> Result<Store> {
    let serves = env.rank == 0 && !env.agent_store;
    let listener = if serves { Some(listener(env)?) } else { None };
    if !serves {
        wait_for_server(env, timeout)?;
    }
    let tcp = TcpStoreOptions {
        host: &env.master_addr,
        port: env.master_port,
        world_size: env.world_size,
        listener,
        timeout,
    };
    let store = Store::tcp(tcp).map_err(|error| {
        failed(env, format!("join the store at {}", master(env)), error.message())
    })?;

    let claims = store
        .with_prefix("tch_parallel")
        .and_then(|ours| ours.add(&format!("claims/{}", env.rank), 1))
        .map_err(|error| failed(env, "claim its rank".into(), error.message()))?;
    if claims > 1 {
        return Err(failed(
            env,
            "claim its rank".into(),
            "another process has the same RANK; every process of a job needs one of its own",
        ));
    }
    Ok(store)
}

/// Where gloo listens: on the interface that PyTorch's variable names, else on this host's address
/// in the network of rank 0. On a single host that is the loopback address, which nobody outside reaches.
pub(super) fn gloo_address(env: &Env) -> Result<GlooAddress> {
    if let Some(interface) = std::env::var("GLOO_SOCKET_IFNAME").ok().filter(|i| !i.is_empty()) {
        return Ok(GlooAddress::Interface(interface));
    }
    Ok(GlooAddress::Host(own_address(env)?.to_string()))
}

/// This host's address as rank 0's host sees it: the one from which packets to it would leave.
fn own_address(env: &Env) -> Result<IpAddr> {
    let resolve = |source: std::io::Error| {
        failed(
            env,
            format!("find the host MASTER_ADDR={}", env.master_addr),
            &format!("{source}; expected a host name or an address that this host can reach"),
        )
    };
    let target = (env.master_addr.as_str(), env.master_port)
        .to_socket_addrs()
        .map_err(resolve)?
        // gloo and the store are happiest with IPv4, which "localhost" offers as well.
        .min_by_key(SocketAddr::is_ipv6)
        .ok_or_else(|| resolve(ErrorKind::NotFound.into()))?;
    let unspecified: SocketAddr = match target {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (std::net::Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    // Connecting a UDP socket sends nothing; it only chooses a route.
    UdpSocket::bind(unspecified)
        .and_then(|socket| socket.connect(target).and_then(|()| socket.local_addr()))
        .map(|address| address.ip())
        .map_err(resolve)
}

/// The socket on which rank 0 serves the store: the launcher's, so that nobody can have taken the
/// port in between, or one bound here.
fn listener(env: &Env) -> Result<TcpListener> {
    if let Some(fd) = env.listen_fd {
        return c10d_sys::inherited_listener(fd).map_err(|source| {
            failed(env, format!("listen on the inherited descriptor {fd}"), &source.to_string())
        });
    }
    let address = SocketAddr::new(own_address(env)?, env.master_port);
    TcpListener::bind(address).map_err(|source| {
        let hint = match source.kind() {
            ErrorKind::AddrInUse => {
                "; another program has the port: choose another MASTER_PORT, or let the launcher choose one"
            }
            _ => "",
        };
        failed(env, format!("listen on {address}"), &format!("{source}{hint}"))
    })
}

/// Waits until the store listens. libtorch's own client would wait as well, but fills the screen
/// with C++ backtraces meanwhile.
fn wait_for_server(env: &Env, timeout: Duration) -> Result<()> {
    let deadline = Instant::now() + timeout;
    loop {
        match TcpStream::connect((env.master_addr.as_str(), env.master_port)) {
            Ok(_) => return Ok(()),
            Err(source) if Instant::now() >= deadline => {
                return Err(failed(
                    env,
                    format!("reach rank 0 at {}", master(env)),
                    &format!(
                        "{source}, for {timeout:?}; rank 0 never came, or MASTER_ADDR and \
                         MASTER_PORT differ between the ranks"
                    ),
                ));
            }
            Err(_) => std::thread::sleep(RETRY),
        }
    }
}

fn master(env: &Env) -> String {
    format!("{}:{}", env.master_addr, env.master_port)
}

fn failed(env: &Env, operation: String, message: &str) -> Error {
    Error::Rendezvous {
        rank: env.rank,
        world_size: env.world_size,
        operation,
        message: message.into(),
    }
}
