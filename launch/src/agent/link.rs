//! The connection to the coordinator: finds it, joins the job, and listens to it until it is gone.

use crate::prelude::*;
use crate::protocol::handshake::{Failed, Host, Joined, Key, join};
use crate::supervisor::{Event, post};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};

/// How long one attempt to connect may take: a lost packet is sent again after 1 s, and after 2 s more.
const ATTEMPT: Duration = Duration::from_secs(4);

const PAUSE: Duration = Duration::from_millis(200);

/// How long the program that has node 0's port may take to answer as a launcher.
const TAKEN: Duration = Duration::from_secs(5);

const PATIENCE: Duration = Duration::from_secs(10);

/// Joins the job on another thread. Whatever the coordinator then says goes to `events`.
pub(crate) fn start(search: Search, events: Sender<Event>) -> Result<()> {
    let listen = move || {
        let reason = search.run().map_or_else(|reason| reason, |joined| listen(joined, &events));
        post(&events, Event::Told(ToAgent::End(End::because(reason))));
    };
    thread::Builder::new().spawn(listen).context("cannot start a thread for the connection")?;
    Ok(())
}

pub(crate) struct Search {
    pub(super) host: String,
    pub(super) port: u16,
    /// The address of the coordinator if it runs in this process.
    pub(super) own: Option<SocketAddr>,
    /// Whether it should, but somebody else has its port.
    pub(super) port_is_taken: bool,
    pub(super) limit: Duration,
    pub(super) key: Key,
    pub(super) node: Node,
}

impl Search {
    /// Joins the job, or tells why that is impossible. Node 0 may be started later than this one.
    fn run(self) -> Result<Joined<Host>, String> {
        let Search { host, port, .. } = &self;
        let start = Instant::now();
        let mut waiting = false;
        loop {
            let problem = match self.connect() {
                Ok(stream) => match join(stream, &self.key, self.node.clone()) {
                    Ok(joined) => return Ok(joined),
                    Err(Failed::Refused(reason)) => return Err(reason),
                    Err(Failed::Here(error)) => return Err(format!("{error:#}")),
                    Err(Failed::Lost(Loss::Garbage)) if !self.port_is_taken => {
                        return Err(format!(
                            "port {port} on {host} belongs to another program: choose another for \
                             every node"
                        ));
                    }
                    Err(Failed::Lost(_)) => "it does not answer".to_owned(),
                },
                Err(error) => error.to_string(),
            };
            if self.port_is_taken && start.elapsed() >= TAKEN {
                return Err(format!(
                    "port {port} on {host} is already in use: choose another for every node"
                ));
            }
            if start.elapsed() >= self.limit {
                let limit = self.limit.as_secs();
                return Err(format!(
                    "node 0 was not reached at {host}, port {port}, within {limit} s: {problem}"
                ));
            }
            if !waiting && start.elapsed() >= PATIENCE {
                say(format_args!("waiting for node 0 at {host}, port {port}: {problem}"));
                waiting = true;
            }
            thread::sleep(PAUSE);
        }
    }

    fn connect(&self) -> std::io::Result<TcpStream> {
        if let Some(own) = self.own {
            return TcpStream::connect_timeout(&own, ATTEMPT);
        }
        let nowhere = Err(std::io::Error::other("its name has no address"));
        let addresses = (self.host.as_str(), self.port).to_socket_addrs()?;
        let connect = |address: SocketAddr| TcpStream::connect_timeout(&address, ATTEMPT);
        addresses.fold(nowhere, |found, address| found.or_else(|_| connect(address)))
    }
}

/// Passes on what the coordinator says, and returns how the connection has ended.
fn listen(joined: Joined<Host>, events: &Sender<Event>) -> String {
    let Joined { mut incoming, outgoing, peer } = joined;
    let beat = outgoing.clone();
    let interval = beat_interval(peer.heartbeat_timeout);
    let beats = thread::Builder::new().spawn(move || {
        while beat.send(&ToCoordinator::Beat).is_ok() {
            thread::sleep(interval);
        }
    });
    if let Err(error) = beats {
        return format!("cannot start a thread for the connection: {error}");
    }
    post(events, Event::Joined { link: outgoing.clone(), is_own: peer.is_own });
    loop {
        match incoming.receive(peer.heartbeat_timeout) {
            Ok(ToAgent::Beat) => {}
            Ok(ToAgent::Wait { reason }) => say(reason),
            Ok(message) => post(events, Event::Told(message)),
            Err(loss) => {
                let reason = format!("node 0 ({}) {loss}", peer.name);
                // If node 0 was only stopped or cut off, it finds this when it is back.
                outgoing.try_send(&ToCoordinator::Stopped { reason: reason.clone(), code: 1 });
                return reason;
            }
        }
    }
}
