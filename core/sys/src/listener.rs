//! Listening sockets inherited from the parent process.

use nix::sys::socket::{getsockopt, sockopt::AcceptConn};
use std::{io::Error, io::Result, net::TcpListener, os::fd::FromRawFd, os::fd::RawFd};

/// The listening socket that this process inherited as descriptor `fd`.
///
/// The result is a duplicate: `fd` stays with its owner, and the port stays open as long as `fd`
/// is. A descriptor that is closed, or not a listening socket, is an error.
pub fn inherited_listener(fd: RawFd) -> Result<TcpListener> {
    // SAFETY: fcntl accepts any number and rejects one that is not an open descriptor.
    let duplicate = unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 3) };
    if duplicate < 0 {
        return Err(Error::last_os_error());
    }
    // SAFETY: the descriptor is new, and nothing else owns it.
    let listener = unsafe { TcpListener::from_raw_fd(duplicate) };
    let refusal = || Error::other("the descriptor is a socket that does not listen");
    getsockopt(&listener, AcceptConn)?.then_some(listener).ok_or_else(refusal)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs::File, os::fd::AsRawFd};

    #[test]
    fn an_inherited_listener_accepts_connections() {
        let original = TcpListener::bind("127.0.0.1:0").unwrap();
        let inherited = inherited_listener(original.as_raw_fd()).unwrap();
        let client = std::net::TcpStream::connect(original.local_addr().unwrap()).unwrap();
        let (_, peer) = inherited.accept().unwrap();
        assert_eq!(peer, client.local_addr().unwrap());
    }

    #[test]
    fn a_closed_descriptor_and_a_file_are_refused() {
        assert_eq!(inherited_listener(-1).unwrap_err().raw_os_error(), Some(libc::EBADF));
        let file = File::open("/dev/null").unwrap();
        let error = inherited_listener(file.as_raw_fd()).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENOTSOCK));
    }
}
