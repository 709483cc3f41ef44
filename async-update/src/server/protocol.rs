//! What a worker and a server say to each other, and in which form.
//!
//! A request is three whole numbers; a part of θ, or of a gradient, follows or comes back as floats:
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
use tch::{Device, Kind, Tensor};
use tch_parallel::{Error, Result};

/// The rank of the server, and that of the worker, in the group that the two make.
pub const SERVER: usize = 0;
pub const WORKER: usize = 1;

/// What a worker asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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

impl Request {
    fn to_numbers(self) -> [i64; 3] {
        let (kind, batches, wanted) = match self {
            Request::Fetch { wanted } => (0, 0, wanted),
            Request::Push { batches } => (1, batches, 0),
            Request::Exchange { batches, wanted } => (2, batches, wanted),
            Request::Patience => (3, 0, 0),
            Request::Done => (4, 0, 0),
        };
        [kind, batches as i64, wanted as i64]
    }

    fn from_numbers(numbers: &[i64]) -> Option<Request> {
        let &[kind, batches, wanted] = numbers else { return None };
        let (batches, wanted) = (usize::try_from(batches).ok()?, usize::try_from(wanted).ok()?);
        match kind {
            0 => Some(Request::Fetch { wanted }),
            1 => Some(Request::Push { batches }),
            2 => Some(Request::Exchange { batches, wanted }),
            3 => Some(Request::Patience),
            4 => Some(Request::Done),
            _ => None,
        }
    }
}

pub fn send_request(link: &Link, request: Request) -> Result<()> {
    link.send(&Tensor::from_slice(&request.to_numbers()), SERVER)
}

pub fn receive_request(link: &Link) -> Result<Request> {
    let mut header = Tensor::zeros([3], (Kind::Int64, Device::Cpu));
    link.recv(&mut header, WORKER)?;
    let numbers = numbers(&header)?;
    Request::from_numbers(&numbers).ok_or_else(|| Error::Argument {
        what: "a worker's request".into(),
        found: format!("{numbers:?}"),
        expected: "a kind from 0 to 4 and two counts; do all ranks run the same program?".into(),
    })
}

/// Stands in place of a grant while the answer is yet to come.
const PATIENCE: i64 = -1;

/// Tells a worker how many batches it may do.
pub fn send_grant(link: &Link, batches: usize) -> Result<()> {
    link.send(&Tensor::from_slice(&[batches as i64]), WORKER)
}

/// Tells a worker that it must wait, before it takes the server for dead. The server also learns
/// whether the worker is still alive.
pub fn ask_for_patience(link: &Link) -> Result<()> {
    link.send(&Tensor::from_slice(&[PATIENCE]), WORKER)
}

/// Receives how many batches the worker may do. Calls `meanwhile` whenever it is asked for patience.
pub fn receive_grant(link: &Link, meanwhile: impl Fn() -> Result<()>) -> Result<usize> {
    let mut header = Tensor::zeros([1], (Kind::Int64, Device::Cpu));
    loop {
        link.recv(&mut header, SERVER)?;
        if let Some(Ok(batches)) = numbers(&header)?.first().map(|&n| usize::try_from(n)) {
            return Ok(batches);
        }
        meanwhile()?;
    }
}

fn numbers(header: &Tensor) -> Result<Vec<i64>> {
    Vec::try_from(header).map_err(Error::tensor("read a header"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_arrives_as_it_was_sent() {
        for request in [
            Request::Fetch { wanted: 4 },
            Request::Push { batches: 3 },
            Request::Exchange { batches: 10, wanted: 7 },
            Request::Patience,
            Request::Done,
        ] {
            assert_eq!(Request::from_numbers(&request.to_numbers()), Some(request));
        }
    }

    #[test]
    fn what_is_no_request_is_not_taken_for_one() {
        for numbers in [&[5, 0, 0][..], &[-1, 0, 0], &[1, -1, 0], &[0, 0]] {
            assert_eq!(Request::from_numbers(numbers), None, "{numbers:?}");
        }
    }
}
