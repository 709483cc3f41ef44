//! What a worker and a server say to each other, and in which form.
//!
//! A request is 24 bytes and an answer 8, encoded by serde; a part of θ, or of a gradient, follows or
//! comes back as floats:
//!
//! | request | the worker sends | the server sends |
//! |---|---|---|
//! | fetch | how many batches it wants to do | how many it may do, once the gate is open, and θ unless that is 0 |
//! | push | a gradient, and of how many batches | nothing |
//! | exchange | its parameters, and after how many batches; how many it wants to do | how many it may do, and the elastic force |
//! | patience | nothing more: it waits for another server | nothing |
//! | done | nothing more | nothing more |
//!
//! No side is silent for long, or it would be taken for dead. While a worker waits for an answer, the
//! server asks it for patience now and then, and the worker asks the other servers.

use crate::link::Link;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use tch::{Device, Kind, Tensor};
use tch_parallel::{Error, Result};

/// The rank of the server, and that of the worker, in the group that the two make.
pub const SERVER: usize = 0;
pub const WORKER: usize = 1;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// θ, and permission to do this number of batches.
    Fetch { wanted: usize },
    /// A gradient follows, the sum over this number of batches.
    Push { batches: usize },
    /// The worker's own parameters follow, after this number of batches.
    Exchange { batches: usize, wanted: usize },
    /// The worker waits for another server's answer.
    Patience,
    /// The worker leaves.
    Done,
}

/// What a server says to a worker that wants batches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// It may do this number of batches.
    Granted(usize),
    /// It must wait, and knows by this that the server is alive. The server also learns whether the worker is.
    Patience,
}

/// The bytes of a message to [`SERVER`], and of one to [`WORKER`]: a receiver must know how many come.
/// A request is a kind and two counts of up to 10 bytes, and an answer a kind and a count of up to 5,
/// since the command line takes none above 32 bits.
const BYTES: [usize; 2] = [24, 8];

pub fn send(link: &Link, message: impl Serialize, dst: usize) -> Result<()> {
    link.send(&Tensor::from_slice(&encode(&message, dst)?), dst)
}

pub fn receive<M: DeserializeOwned>(link: &Link, src: usize) -> Result<M> {
    let mut header = Tensor::zeros([BYTES[link.group.rank()] as i64], (Kind::Uint8, Device::Cpu));
    link.recv(&mut header, src)?;
    decode(&Vec::try_from(header)?)
}

fn encode(message: &impl Serialize, dst: usize) -> Result<Vec<u8>> {
    let mut bytes = vec![0; BYTES[dst]];
    postcard::to_slice(message, &mut bytes).map_err(Error::other)?;
    Ok(bytes)
}

fn decode<M: DeserializeOwned>(bytes: &[u8]) -> Result<M> {
    let expected = "one that this program sends; do all ranks run the same program?";
    postcard::from_bytes(bytes).map_err(|_| {
        Error::argument("a message between worker and server", format!("{bytes:?}"), expected)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_and_answers_arrive_as_they_were_sent() {
        for request in [
            Request::Fetch { wanted: 4 },
            Request::Push { batches: 3 },
            Request::Exchange { batches: 10, wanted: 7 },
            Request::Exchange { batches: usize::MAX, wanted: usize::MAX },
            Request::Patience,
            Request::Done,
        ] {
            assert_eq!(decode::<Request>(&encode(&request, SERVER).unwrap()).unwrap(), request);
        }
        for answer in [Answer::Granted(0), Answer::Granted(u32::MAX as usize), Answer::Patience] {
            assert_eq!(decode::<Answer>(&encode(&answer, WORKER).unwrap()).unwrap(), answer);
        }
    }

    #[test]
    fn what_is_no_request_is_not_taken_for_one() {
        for bytes in [&[5, 0, 0][..], &[255; 24], &[2, 1], &[]] {
            let error = decode::<Request>(bytes).unwrap_err().to_string();
            assert!(error.contains("do all ranks run the same program?"), "{error}");
        }
    }
}
