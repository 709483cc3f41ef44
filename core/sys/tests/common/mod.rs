//! Ranks that are threads of the test's process.

#![allow(dead_code, reason = "not every test program needs everything")]

use c10d_sys::{Call, Error, GlooAddress, GlooOptions, ProcessGroup, Store, Work};
use std::{sync::Arc, thread, time::Duration};
use tch::{Device, Kind, Tensor};

pub(crate) const FLOAT: (Kind, Device) = (Kind::Float, Device::Cpu);

pub(crate) const NOW: Call = Call { timeout: None, is_async: false };
pub(crate) const LATER: Call = Call { timeout: None, is_async: true };

pub(crate) trait Now {
    /// Waits for what has been started.
    fn now(self) -> Result<(), Error>;
}

impl Now for Result<Work, Error> {
    fn now(self) -> Result<(), Error> {
        self.and_then(|work| work.wait(None))
    }
}

/// One rank's two groups with the same members.
pub(crate) struct Rank {
    pub(crate) rank: usize,
    pub(crate) ranks: usize,
    pub(crate) shared: ProcessGroup,
    pub(crate) gloo: ProcessGroup,
}

/// Runs `f` on each of `ranks` ranks, which are threads of this process.
pub(crate) fn with_ranks<T: Send>(ranks: usize, f: impl Fn(Rank) -> T + Sync) -> Vec<T> {
    with_ranks_and_timeout(ranks, Duration::from_secs(600), f)
}

pub(crate) fn with_ranks_and_timeout<T: Send>(
    ranks: usize,
    timeout: Duration,
    f: impl Fn(Rank) -> T + Sync,
) -> Vec<T> {
    let store = Arc::new(Store::hash().unwrap());
    let join = |rank, prefix, shared_memory| {
        let address = GlooAddress::Host("127.0.0.1".into());
        let join_timeout = Duration::from_secs(600);
        let options = GlooOptions { address, shared_memory, name: rank, timeout, join_timeout };
        ProcessGroup::gloo(&store.with_prefix(prefix).unwrap(), rank, ranks, &options).unwrap()
    };
    thread::scope(|scope| {
        let start = |rank| {
            let (f, join) = (&f, &join);
            scope.spawn(move || {
                let (shared, gloo) = (join(rank, "shared", true), join(rank, "gloo", false));
                f(Rank { rank, ranks, shared, gloo })
            })
        };
        let threads: Vec<_> = (0..ranks).map(start).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// A copy of the tensor in shared memory.
pub(crate) fn allocated(group: &ProcessGroup, tensor: &Tensor) -> Tensor {
    let mut copy = group.allocate_tensor(&tensor.size(), (tensor.kind(), Device::Cpu)).unwrap();
    copy.copy_(tensor);
    copy
}

pub(crate) fn bits(tensor: &Tensor) -> Vec<u8> {
    let mut bytes = vec![0; tensor.numel() * tensor.kind().elt_size_in_bytes()];
    tensor.copy_data_u8(&mut bytes, tensor.numel());
    bytes
}

/// A generator of its own (splitmix64), so that a case can be repeated by its number.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % limit
    }
}
