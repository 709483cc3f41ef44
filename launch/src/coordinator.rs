//! Node 0's side of a job: with several nodes, a thread that listens where they meet and says what `job` decides.

pub(crate) mod alone;
mod cause;
mod job;
pub(crate) mod listener;
mod placement;
mod terms;

use crate::prelude::*;
use crate::protocol::handshake::{Failed, Joined, Key, PATIENCE, admit};
use job::{Action, Event, Job, NodeId};
use std::{net::SocketAddr, net::TcpListener, os::fd::OwnedFd};
use std::{sync::atomic::AtomicUsize, sync::atomic::Ordering, thread::JoinHandle};
use terms::Terms;

/// How many connections may be in their handshake at the same time. Others must try again.
const HANDSHAKES: usize = 64;

const STRANGERS: usize = 10;

pub(crate) struct Coordinator {
    pub(crate) address: SocketAddr,
    thread: JoinHandle<()>,
}

impl Coordinator {
    pub(crate) fn start(args: &Args, listener: TcpListener, key: &Key, own: &Node) -> Result<Self> {
        let address = listener.local_addr().context("cannot use the port where the nodes meet")?;
        let (sender, events) = channel();
        let terms = Terms::new(args, own);
        let heartbeat_timeout = terms.heartbeat_timeout;
        let admission = Arc::new(Admission {
            key: key.clone(),
            welcome: ToAgent::Welcome {
                host: own.host.clone(),
                launcher: own.launcher.clone(),
                heartbeat_timeout: heartbeat_timeout.as_secs(),
            },
            heartbeat_timeout,
            sender,
            handshakes: Arc::default(),
            strangers: AtomicUsize::new(0),
        });
        let accept = move || admission.admit_all(&listener);
        thread::Builder::new().spawn(accept).context("cannot start a thread for connections")?;
        let job = Job::new(terms, Instant::now());
        let coordinate = move || coordinate(job, &events, heartbeat_timeout);
        let thread = thread::Builder::new().spawn(coordinate);
        let thread = thread.context("cannot start the coordinator's thread")?;
        Ok(Coordinator { address, thread })
    }

    /// Waits until every node knows how the job has ended.
    pub(crate) fn finish(self) -> Result<()> {
        self.thread.join().map_err(|_| anyhow!("the coordinator's thread has panicked"))
    }
}

/// What the coordinator's thread hears of a node, and how to tell it something once it has joined.
type Message = (NodeId, Event, Option<Outgoing>);

struct Admission {
    key: Key,
    welcome: ToAgent,
    heartbeat_timeout: Duration,
    sender: Sender<Message>,
    /// Every handshake in progress holds a clone, so the count of these is the number of handshakes plus one.
    handshakes: Arc<()>,
    strangers: AtomicUsize,
}

impl Admission {
    fn admit_all(self: &Arc<Self>, listener: &TcpListener) {
        for id in 0.. {
            let Ok((stream, address)) = listener.accept() else {
                // Out of file descriptors, most likely: some may be closed soon.
                thread::sleep(Duration::from_millis(100));
                continue;
            };
            if Arc::strong_count(&self.handshakes) > HANDSHAKES {
                continue;
            }
            let (admission, handshake) = (Arc::clone(self), Arc::clone(&self.handshakes));
            // Without a thread, the connection closes, and an agent tries again.
            let _ = thread::Builder::new().spawn(move || {
                let admitted = admit(stream, &admission.key, &admission.welcome, PATIENCE);
                drop(handshake);
                match admitted {
                    Ok(node) => admission.listen_to(id, node),
                    Err(failed) => admission.mention(address, failed),
                }
            });
        }
    }

    fn listen_to(&self, id: NodeId, joined: Joined<Node>) {
        let Joined { mut incoming, outgoing, peer } = joined;
        // Sending fails when the job is over, and nobody needs to know.
        let post = |event, outgoing| drop(self.sender.send((id, event, outgoing)));
        post(Event::Joined(peer), Some(outgoing));
        let loss = loop {
            match incoming.receive(self.heartbeat_timeout) {
                Ok(message) => post(Event::Said(message), None),
                Err(loss) => break loss,
            }
        };
        post(Event::Lost(loss), None);
    }

    fn mention(&self, address: SocketAddr, failed: Failed) {
        let reason = match failed {
            Failed::Refused(reason) => reason,
            Failed::Here(error) => format!("{error:#}"),
            Failed::Lost(Loss::Closed) => "it closed the connection".to_owned(),
            Failed::Lost(Loss::Silent(_)) => "it said nothing in time".to_owned(),
            Failed::Lost(Loss::Garbage) => "it is not a launcher".to_owned(),
        };
        match self.strangers.fetch_add(1, Ordering::SeqCst) {
            count if count < STRANGERS => {
                say(format_args!("{} does not join the job: {reason}", address.ip()));
            }
            STRANGERS => say("others that do not join the job are not mentioned"),
            _ => {}
        }
    }
}

/// The ports of rank 0 of the last generations. They stay reserved, as ranks may still look for one of these.
type Ports = VecDeque<OwnedFd>;

/// How many stay reserved. Each is an open file, and a job may lose ranks for weeks.
const RESERVED: usize = 64;

/// Rank 0's port: the one that is set, or else a free one, which it reserves.
fn choose(ports: &mut Ports, fixed_port: Option<u16>) -> Result<u16> {
    if let Some(port) = fixed_port {
        return Ok(port);
    }
    let (port, reservation) = port::reserve()?;
    ports.push_back(reservation);
    ports.drain(..ports.len().saturating_sub(RESERVED));
    Ok(port)
}

fn perform(
    actions: Vec<Action>,
    mut choose: impl FnMut(Option<u16>) -> Result<u16>,
    mut tell: impl FnMut(NodeId, ToAgent),
) -> Result<()> {
    for action in actions {
        match action {
            Action::Tell(id, message) => tell(id, message),
            Action::Start { placements, fixed_port, waits } => {
                let master_port = choose(fixed_port)?;
                for (id, placement) in placements {
                    tell(id, ToAgent::Start { placement, master_port, waits });
                }
            }
            Action::Regroup { places, is_loss, reason } => {
                let master_port = choose(None)?;
                for (id, placement, claim) in places {
                    let reason = reason.clone();
                    let next = Regroup { placement, master_port, claim, is_loss, reason };
                    tell(id, ToAgent::Regroup(next));
                }
            }
        }
    }
    Ok(())
}

/// Tells the nodes that have joined what the job decides, until it is over.
fn coordinate(mut job: Job, events: &Receiver<Message>, heartbeat_timeout: Duration) {
    let mut nodes: BTreeMap<NodeId, Outgoing> = BTreeMap::new();
    let (mut ports, mut next_beat) = (Ports::new(), Instant::now());
    let (mut actions, mut lost) = (Vec::new(), Vec::new());
    loop {
        let now = Instant::now();
        actions.extend(job.pass_time(now));
        let tell = |id, message| nodes.get(&id).into_iter().for_each(|it| it.try_send(&message));
        if let Err(error) = perform(actions, |fixed_port| choose(&mut ports, fixed_port), tell) {
            say(format_args!("{error:#}"));
            break;
        }
        lost.drain(..).filter_map(|id| nodes.remove(&id)).for_each(|node| node.close());
        if job.is_over() {
            break;
        }
        if next_beat <= now {
            next_beat = now + beat_interval(heartbeat_timeout);
            nodes.values().for_each(|node| node.try_send(&ToAgent::Beat));
        }
        let next = job.due().map_or(next_beat, |due| due.min(next_beat));
        actions = match events.recv_timeout(next.saturating_duration_since(now)) {
            Ok((id, event, outgoing)) => {
                nodes.extend(outgoing.map(|outgoing| (id, outgoing)));
                if let Event::Lost(_) = event {
                    lost.push(id);
                }
                job.handle(id, event, Instant::now())
            }
            // Something is due. The threads that send events outlive this one.
            Err(_) => Vec::new(),
        };
    }
    // Nodes that have not ended yet see that nobody decides any more.
    nodes.values().for_each(Outgoing::close);
}
