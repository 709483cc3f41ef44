//! What the launcher and the programs that it starts agree on, beyond torchrun's environment variables.

#![deny(missing_docs)]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::{io, time::Duration};

mod gpus;

pub use gpus::gpus;

/// How long the other ranks run on after a failure: what each says of it explains more than a SIGTERM.
pub const NOTICE: Duration = Duration::from_secs(1);

/// This host's address as the host of `other` sees it: the one from which packets to it leave. If the address of
/// node 0 is a gateway's, node 0 listens on this one instead.
pub fn own_address(other: SocketAddr) -> io::Result<IpAddr> {
    let unspecified: SocketAddr = match other {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    // Connecting a UDP socket sends nothing; it only selects a route.
    let socket = UdpSocket::bind(unspecified)?;
    socket.connect(other)?;
    Ok(socket.local_addr()?.ip())
}

/// The variable that names the Unix socket on which the launcher tells a rank its place in a job whose ranks come and
/// go. A rank that connects takes part. It then reads one JSON value a line: `{"place": …}` with `generation`, a number
/// that grows; `is_loss`, whether a rank of the last generation is gone; and `variables`, the environment of its new
/// place. It writes `broken G` if the group of generation G has failed, and `finished G` once it has finished in that;
/// then it waits for another place, or for `"leave"`: all have finished, and from then on no rank is replaced.
pub const ELASTIC: &str = "TCH_PARALLEL_ELASTIC";

/// The variable in which rank 0 may get the store's listening socket, as the number of a file descriptor.
pub const LISTEN_FD: &str = "TCH_PARALLEL_MASTER_LISTEN_FD";

/// The key of `extraInfo` in `TORCHELASTIC_ERROR_FILE`'s file by which a rank says that another one made it fail.
pub const CULPRIT: &str = "culprit";
