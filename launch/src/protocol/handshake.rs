//! The first messages of a connection: whether both sides are launchers of the same job.

use super::connection::{Incoming, Loss, Outgoing, split};
use super::proof::{SECRET, Side, Transcript, nonce};
use super::{Node, ToAgent, ToCoordinator, VERSION};
use anyhow::{Context, Result};
use serde_json::Value;
use std::{net::TcpStream, time::Duration, time::Instant};

/// How long the coordinator waits for all messages of an agent together.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);

/// How long an agent waits for an answer: longer than the coordinator, which may let it in at the last moment.
const ANSWER: Duration = Duration::from_secs(20);

/// What keeps the launchers of one job apart from all others.
#[derive(Clone)]
pub(crate) struct Key {
    pub(crate) job: String,
    secret: Vec<u8>,
}

impl Key {
    /// The key of a job, with the secret of the environment.
    pub(crate) fn new(job: &str) -> Self {
        let secret = std::env::var_os(SECRET).unwrap_or_default();
        Key { job: job.to_owned(), secret: secret.into_encoded_bytes() }
    }
}

/// Both halves of a connection whose handshake has succeeded.
pub(crate) struct Joined<T> {
    pub(crate) incoming: Incoming,
    pub(crate) outgoing: Outgoing,
    /// What the other side has said of itself.
    pub(crate) peer: T,
}

/// The coordinator, as an agent knows it.
pub(crate) struct Host {
    pub(crate) name: String,
    /// Whether it runs in this very launcher.
    pub(crate) is_own: bool,
    pub(crate) heartbeat_timeout: Duration,
}

#[derive(Debug)]
pub(crate) enum Failed {
    /// Trying again would not help, and this is why.
    Refused(String),
    Lost(Loss),
    /// This side cannot go on.
    Here(anyhow::Error),
}

impl From<Loss> for Failed {
    fn from(loss: Loss) -> Self {
        Failed::Lost(loss)
    }
}

impl From<anyhow::Error> for Failed {
    fn from(error: anyhow::Error) -> Self {
        Failed::Here(error)
    }
}

/// Asks the coordinator at the other end for a place in the job.
pub(crate) fn join(stream: TcpStream, key: &Key, node: Node) -> Result<Joined<Host>, Failed> {
    let (mut incoming, outgoing) = split(stream).context("cannot use the connection")?;
    let agent_nonce = &nonce()?;
    let (job, version) = (key.job.clone(), VERSION);
    outgoing.send(&ToCoordinator::Hello { version, job, nonce: agent_nonce.clone() })?;
    let (coordinator_nonce, proof) = match incoming.receive(ANSWER)? {
        ToAgent::Challenge { nonce, proof } => (nonce, proof),
        ToAgent::Refused { reason } => return Err(Failed::Refused(reason)),
        _ => return Err(Loss::Garbage.into()),
    };
    let transcript =
        Transcript { job: &key.job, agent_nonce, coordinator_nonce: &coordinator_nonce };
    if !transcript.verify(&key.secret, Side::Coordinator, &proof)? {
        return Err(Failed::Refused(format!("{SECRET} differs from node 0's")));
    }
    let proof = transcript.prove(&key.secret, Side::Agent)?;
    let own = node.launcher.clone();
    outgoing.send(&ToCoordinator::Join { proof, node })?;
    match incoming.receive(ANSWER)? {
        ToAgent::Welcome { host, launcher, heartbeat_timeout } => {
            let heartbeat_timeout = Duration::from_secs(heartbeat_timeout);
            let peer = Host { name: host, is_own: launcher == own, heartbeat_timeout };
            Ok(Joined { incoming, outgoing, peer })
        }
        ToAgent::Refused { reason } => Err(Failed::Refused(reason)),
        _ => Err(Loss::Garbage.into()),
    }
}

/// Finds out whether the other end may join the job, and welcomes it.
pub(crate) fn admit(
    stream: TcpStream,
    key: &Key,
    welcome: &ToAgent,
    patience: Duration,
) -> Result<Joined<Node>, Failed> {
    let deadline = Instant::now() + patience;
    let left = || deadline.saturating_duration_since(Instant::now());
    let (mut incoming, outgoing) = split(stream).context("cannot use the connection")?;
    let refuse = |reason: String| {
        let told = outgoing.send(&ToAgent::Refused { reason: reason.clone() });
        told.map_or_else(Failed::Lost, |()| Failed::Refused(reason))
    };

    let hello = incoming.line(left())?;
    // The part of a `Hello` that every version has.
    let version = serde_json::from_slice(&hello).ok().and_then(|it: Value| it["version"].as_u64());
    let version = version.ok_or(Loss::Garbage)?;
    if version != u64::from(VERSION) {
        return Err(refuse(format!(
            "different versions of launch: node 0 speaks protocol {VERSION}, and another node \
             speaks {version}; install the same launch on every node"
        )));
    }
    let Ok(ToCoordinator::Hello { job, nonce: agent_nonce, .. }) = serde_json::from_slice(&hello)
    else {
        return Err(Loss::Garbage.into());
    };
    if job != key.job {
        return Err(refuse(format!(
            "different jobs: --rdzv-id is {:?} on node 0, and {job:?} on another node",
            key.job
        )));
    }
    let coordinator_nonce = &nonce()?;
    let transcript = Transcript { job: &job, agent_nonce: &agent_nonce, coordinator_nonce };
    let proof = transcript.prove(&key.secret, Side::Coordinator)?;
    outgoing.send(&ToAgent::Challenge { nonce: coordinator_nonce.clone(), proof })?;
    let ToCoordinator::Join { proof, node } = incoming.receive(left())? else {
        return Err(Loss::Garbage.into());
    };
    if !transcript.verify(&key.secret, Side::Agent, &proof)? {
        return Err(refuse(format!("{SECRET} differs from node 0's")));
    }
    outgoing.send(welcome)?;
    Ok(Joined { incoming, outgoing, peer: node })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::connection::tests::ends;
    use std::io::{BufRead, BufReader, Read, Write};
    use std::thread;

    fn key(secret: &str) -> Key {
        Key { job: "j".to_owned(), secret: secret.into() }
    }

    fn welcome() -> ToAgent {
        ToAgent::Welcome { host: "a".to_owned(), launcher: "l".to_owned(), heartbeat_timeout: 7 }
    }

    /// What the coordinator makes of what a stranger sends, and its answer.
    fn strange(sent: &[u8], patience: Duration) -> (Failed, String) {
        let (mut stranger, here) = ends();
        stranger.write_all(sent).unwrap();
        let failed = admit(here, &key(""), &welcome(), patience).map(|_| ()).unwrap_err();
        let mut answer = String::new();
        let _ = stranger.read_to_string(&mut answer);
        (failed, answer)
    }

    #[test]
    fn an_agent_that_cannot_prove_the_secret_is_refused() {
        let (stranger, here) = ends();
        let ask = thread::spawn(move || {
            let mut lines = BufReader::new(stranger.try_clone().unwrap()).lines();
            let hello = r#""type":"hello","job":"j","nonce":"aa""#;
            writeln!(&stranger, "{{\"version\":{VERSION},{hello}}}").unwrap();
            lines.next();
            let proof = "00".to_owned();
            let node = Node::example(Some(1), "l", (2, 2));
            let join = serde_json::to_string(&ToCoordinator::Join { proof, node });
            writeln!(&stranger, "{}", join.unwrap()).unwrap();
            lines.next().unwrap().unwrap()
        });
        let admitted = admit(here, &key("s"), &welcome(), PATIENCE).map(|_| ());
        assert!(matches!(admitted, Err(Failed::Refused(_))), "{admitted:?}");
        assert!(ask.join().unwrap().contains("TCH_PARALLEL_SECRET differs"));
    }

    #[test]
    fn another_version_is_refused_whatever_else_it_says() {
        let (failed, answer) = strange(b"{\"version\":99,\"more\":[1]}\n", PATIENCE);
        assert!(matches!(failed, Failed::Refused(_)), "{failed:?}");
        let versions = format!("speaks protocol {VERSION}, and another node speaks 99");
        assert!(answer.contains(&versions), "{answer}");
    }

    #[test]
    fn garbage_and_silence_are_turned_away_without_an_answer() {
        for sent in [&b"GET / HTTP/1.1\r\n\r\n"[..], b"\n", b"{}\n", b"\xff\xff\n", b"[[[[\n"] {
            let (failed, answer) = strange(sent, PATIENCE);
            assert!(matches!(failed, Failed::Lost(Loss::Garbage)), "{sent:?}: {failed:?}");
            assert_eq!(answer, "");
        }
        let short = Duration::from_millis(100);
        let before = Instant::now();
        let (failed, _) = strange(b"{\"type\":", short);
        assert!(matches!(failed, Failed::Lost(Loss::Silent(_))), "{failed:?}");
        assert!(before.elapsed() >= short);
    }
}
