//! A connection between two launchers: lines of JSON with a time limit on each.

use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt::{self, Display, Formatter};
use std::io::{ErrorKind, Read, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::{net::Shutdown, net::TcpStream, time::Duration, time::Instant};

/// The longest line. The longest message has the last lines of a rank's stderr.
pub(crate) const MAX_LINE: usize = 64 * 1024;

/// How long a message may wait for room in the socket's buffer, which holds far more than a silent peer is ever sent.
const ROOM: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Loss {
    /// The other side has closed it, or the system has.
    Closed,
    /// The other side has sent nothing for this long.
    Silent(Duration),
    /// The other side has sent something else than the message that was expected.
    Garbage,
}

impl Display for Loss {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Loss::Closed => write!(f, "has gone: its launcher closed the connection"),
            Loss::Silent(time) => write!(f, "has been silent for {} s", time.as_secs()),
            Loss::Garbage => write!(f, "sent something that is not a launch message"),
        }
    }
}

pub(crate) struct Incoming {
    stream: Arc<TcpStream>,
    /// What has been read of lines that are not complete, or not asked for yet.
    pending: Vec<u8>,
}

/// The writing half. Clones write to the same connection, a whole line at a time.
#[derive(Clone)]
pub(crate) struct Outgoing(Arc<Mutex<Arc<TcpStream>>>);

pub(crate) fn split(stream: TcpStream) -> std::io::Result<(Incoming, Outgoing)> {
    stream.set_nodelay(true)?;
    stream.set_write_timeout(Some(ROOM))?;
    // One descriptor: node 0 has a connection to every node, and the system limits its files.
    let stream = Arc::new(stream);
    let outgoing = Outgoing(Arc::new(Mutex::new(Arc::clone(&stream))));
    Ok((Incoming { stream, pending: Vec::new() }, outgoing))
}

impl Incoming {
    /// The next message, if it comes within `limit`.
    pub(crate) fn receive<M: DeserializeOwned>(&mut self, limit: Duration) -> Result<M, Loss> {
        serde_json::from_slice(&self.line(limit)?).map_err(|_| Loss::Garbage)
    }

    pub(crate) fn line(&mut self, limit: Duration) -> Result<Vec<u8>, Loss> {
        let deadline = Instant::now() + limit;
        let mut bytes = [0; 4096];
        loop {
            if let Some(end) = self.pending.iter().position(|byte| *byte == b'\n') {
                return Ok(self.pending.drain(..=end).collect());
            }
            if self.pending.len() > MAX_LINE {
                return Err(Loss::Garbage);
            }
            // The system takes zero for no limit at all. What has arrived while this process was stopped is still read.
            let left = deadline.saturating_duration_since(Instant::now());
            let left = left.max(Duration::from_millis(1));
            self.stream.set_read_timeout(Some(left)).map_err(|_| Loss::Closed)?;
            match (&*self.stream).read(&mut bytes) {
                Ok(0) => return Err(Loss::Closed),
                Ok(count) => self.pending.extend_from_slice(&bytes[..count]),
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock | ErrorKind::TimedOut if Instant::now() >= deadline => {
                        return Err(Loss::Silent(limit));
                    }
                    ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted => {}
                    _ => return Err(Loss::Closed),
                },
            }
        }
    }
}

impl Outgoing {
    pub(crate) fn send(&self, message: &impl Serialize) -> Result<(), Loss> {
        let mut line = serde_json::to_vec(message).map_err(|_| Loss::Garbage)?;
        line.push(b'\n');
        let stream = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        (&**stream).write_all(&line).map_err(|_| {
            // A part of a line may have been sent: nothing can follow.
            let _ = stream.shutdown(Shutdown::Both);
            Loss::Closed
        })
    }

    /// Sends the message unless the other side is lost, which the thread that listens to it notices.
    pub(crate) fn try_send(&self, message: &impl Serialize) {
        let _ = self.send(message);
    }

    /// Ends the connection. What has been sent still arrives.
    pub(crate) fn close(&self) {
        let _ = self.0.lock().unwrap_or_else(PoisonError::into_inner).shutdown(Shutdown::Both);
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::{net::TcpListener, thread};

    const SHORT: Duration = Duration::from_millis(50);
    const LONG: Duration = Duration::from_secs(20);

    pub(crate) fn ends() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let there = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (there, listener.accept().unwrap().0)
    }

    /// A stranger's end, and ours.
    fn pair() -> (TcpStream, (Incoming, Outgoing)) {
        let (stranger, here) = ends();
        (stranger, split(here).unwrap())
    }

    #[test]
    fn messages_arrive_whole_however_the_bytes_do() {
        let (mut stranger, (mut incoming, _outgoing)) = pair();
        let write = thread::spawn(move || {
            b"\"one\"\n\"two\"\n".chunks(1).for_each(|byte| stranger.write_all(byte).unwrap());
        });
        assert_eq!(incoming.receive::<String>(LONG).unwrap(), "one");
        assert_eq!(incoming.receive::<String>(LONG).unwrap(), "two");
        write.join().unwrap();
        assert_eq!(incoming.receive::<String>(LONG), Err(Loss::Closed));
    }

    #[test]
    fn silence_and_half_a_line_end_at_the_limit() {
        let (mut stranger, (mut incoming, _outgoing)) = pair();
        assert_eq!(incoming.receive::<String>(SHORT), Err(Loss::Silent(SHORT)));
        stranger.write_all(b"\"half").unwrap();
        assert_eq!(incoming.receive::<String>(SHORT), Err(Loss::Silent(SHORT)));
    }

    #[test]
    fn garbage_and_lines_without_end_are_no_messages() {
        let (mut stranger, (mut incoming, _outgoing)) = pair();
        stranger.write_all(b"GET / HTTP/1.1\r\n").unwrap();
        assert_eq!(incoming.receive::<String>(LONG), Err(Loss::Garbage));
        let (mut stranger, (mut incoming, _outgoing)) = pair();
        let write = thread::spawn(move || stranger.write_all(&vec![b'x'; 4 * MAX_LINE]));
        assert_eq!(incoming.receive::<String>(LONG), Err(Loss::Garbage));
        drop((incoming, _outgoing));
        // Whatever it has not taken, the stranger keeps.
        let _ = write.join().unwrap();
    }

    #[test]
    fn a_closed_connection_takes_no_message() {
        let (stranger, (_incoming, outgoing)) = pair();
        drop(stranger);
        outgoing.close();
        assert_eq!(outgoing.send(&"x"), Err(Loss::Closed));
    }
}
