//! Times of messages and of updates between the ranks of this job.

use super::fit::Point;
use crate::link::Link;
use crate::methods::{Method, Ring, SyncAllReduce, SyncPs};
use std::time::Instant;
use tch::{Device, Kind, Tensor};
use tch_parallel::distributed::{ProcessGroup, ReduceOp};
use tch_parallel::{Error, Result};

/// The time of a message between ranks 0 and 1, for sizes from 4 bytes to 16 MiB in steps of 4: half of
/// the time for there and back. The other ranks wait. A collective; all ranks get the times.
pub fn messages(group: &ProcessGroup, link: &Link) -> Result<Vec<Point>> {
    (1..=12).map(|power| message(group, link, 4usize.pow(power))).collect()
}

fn message(group: &ProcessGroup, link: &Link, bytes: usize) -> Result<Point> {
    let mut tensor = zeros(bytes)?;
    let ping_pong = || {
        let begun = Instant::now();
        match group.rank() {
            0 => link.send(&tensor, 1).and_then(|()| link.recv(&mut tensor, 1))?,
            1 => link.recv(&mut tensor, 0).and_then(|()| link.send(&tensor, 0))?,
            _ => {}
        }
        Ok(begun.elapsed().as_secs_f64())
    };
    group.barrier()?;
    Ok((bytes as f64, fastest(group, bytes, ping_pong)? / 2.0))
}

const ITERATIONS: u32 = 10;

/// The mean time of [`ITERATIONS`] of a ring: each of N ranks sends 1/N of the model to its right neighbour and
/// receives as much from its left. Ranks that share cores are slower at this than two of them.
pub fn iteration(group: &ProcessGroup, link: &Link, bytes: usize) -> Result<f64> {
    let (rank, ranks) = (group.rank(), group.world_size());
    let (right, left) = ((rank + 1) % ranks, (rank + ranks - 1) % ranks);
    let chunk = zeros(bytes.div_ceil(ranks))?;
    let exchange = || {
        group.barrier()?;
        let begun = Instant::now();
        for _ in 0..ITERATIONS {
            let _ = link.exchange(chunk.shallow_clone(), right, chunk.empty_like(), left)?;
        }
        Ok(begun.elapsed().as_secs_f64() / f64::from(ITERATIONS))
    };
    fastest(group, bytes, exchange)
}

/// The time of one synchronous update of a model of this size, by `sync-ps`, `ring` and
/// `sync-allreduce`, in seconds. A collective; all ranks get the times, which are those of the slowest.
pub fn updates(group: &ProcessGroup, bytes: usize) -> Result<[f64; 3]> {
    let link = || Link { group: group.clone() };
    let lr = 0.1;
    Ok([
        update(group, bytes, SyncPs { link: link(), lr })?,
        update(group, bytes, Ring { link: link(), lr })?,
        update(group, bytes, SyncAllReduce { group: group.clone(), lr })?,
    ])
}

fn update(group: &ProcessGroup, bytes: usize, mut method: impl Method) -> Result<f64> {
    let mut theta = zeros(bytes)?;
    let update = || {
        let gradient = zeros(bytes)?;
        group.barrier()?;
        let begun = Instant::now();
        method.after_batch(&mut theta, gradient)?;
        Ok(begun.elapsed().as_secs_f64())
    };
    fastest(group, bytes, update)
}

fn zeros(bytes: usize) -> Result<Tensor> {
    let elements = (bytes / size_of::<f32>()) as i64;
    Tensor::f_zeros([elements], (Kind::Float, Device::Cpu)).map_err(|error| {
        let why = format!("the size of a model that fits into memory ({})", Error::from(error));
        Error::argument("--bytes", bytes, format!("{why}; a smaller --bytes may fit"))
    })
}

/// The fastest of many: whatever else runs can only add to what the exchange takes. Each time the slowest rank counts,
/// since a rank's part may be over before others'. Exchanges of many bytes take long, and are timed less often.
fn fastest(group: &ProcessGroup, bytes: usize, mut f: impl FnMut() -> Result<f64>) -> Result<f64> {
    let repetitions = ((256usize << 20) / bytes.max(1)).clamp(11, 201);
    let seconds = (0..repetitions).map(|_| f()).collect::<Result<Vec<_>>>()?;
    let mut seconds = Tensor::from_slice(&seconds);
    group.all_reduce(&mut seconds, ReduceOp::Max)?;
    Ok(f64::try_from(seconds.min())?)
}
