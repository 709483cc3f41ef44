//! How a process becomes a rank: `init_process_group`.

use super::agreement;
use super::device::{self, Backend, DeviceChoice};
use super::env::Env;
use super::post_mortem::PostMortem;
use super::process_group::{Place, ProcessGroup};
use super::rendezvous;
use crate::{Error, Result};
use c10d_sys::{GlooAddress, Store};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
#[cfg(feature = "cuda")]
use tch::Device;

/// What [`init_process_group`] is told beyond the environment.
#[derive(Debug, Clone, Copy)]
pub struct ProcessGroupOptions {
    /// Who moves the tensors; by default NCCL for CUDA and gloo for the CPU, as in PyTorch.
    pub backend: Option<Backend>,
    /// Where this rank's tensors live.
    pub device: DeviceChoice,
    /// How long to wait for the other ranks, when they meet and in every collective. PyTorch's
    /// default for gloo, 30 minutes: a rank may well load data that long.
    pub timeout: Duration,
}

/// A timeout beyond this is this: the engine counts milliseconds, and clocks overflow.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 60 * 60);

impl Default for ProcessGroupOptions {
    fn default() -> Self {
        ProcessGroupOptions {
            backend: None,
            device: DeviceChoice::default(),
            timeout: Duration::from_secs(30 * 60),
        }
    }
}

/// Meets the other ranks of the job, as the environment describes it ([`Env`]).
///
/// PyTorch's counterpart is `torch.distributed.init_process_group`; ranks of either language meet
/// in one group. Without a launcher the world is this process alone, and every collective is the
/// identity.
///
/// # Errors
/// - [`Error::Environment`]: the environment is half-set or makes no sense.
/// - [`Error::Argument`]: the device or the backend is not to be had here.
/// - [`Error::Rendezvous`]: the port is taken, or a rank did not come within the timeout.
pub fn init_process_group(options: ProcessGroupOptions) -> Result<ProcessGroup> {
    let env = Env::read()?;
    let (rank, world_size, local_rank) =
        env.as_ref().map_or((0, 1, 0), |env| (env.rank, env.world_size, env.local_rank));
    let (device, backend) = device::choose(options.device, options.backend, local_rank)?;
    let place = Place {
        rank,
        world_size,
        local_rank,
        device,
        backend,
        timeout: options.timeout.min(LONGEST),
    };
    if env.is_some() && GROUP_EXISTS.swap(true, Ordering::Relaxed) {
        return Err(place.could_not_join(
            "this process has joined it already; keep the group, or a clone of it",
        ));
    }
    let joined = join(&env, place);
    if joined.is_err() {
        forget_group();
    }
    joined
}

/// Whether a group lives that a launcher's environment describes: there is one for each process.
static GROUP_EXISTS: AtomicBool = AtomicBool::new(false);

/// To be called when that group is gone.
pub(super) fn forget_group() {
    GROUP_EXISTS.store(false, Ordering::Relaxed);
}

fn join(env: &Option<Env>, place: Place) -> Result<ProcessGroup> {
    let Place { rank, world_size, timeout, .. } = place;
    let failed = |error: c10d_sys::Error| place.could_not_join(error.message());
    let (store, address) = match env {
        Some(env) => (rendezvous::store(env, timeout)?, rendezvous::gloo_address(env)?),
        None => (Store::hash().map_err(failed)?, GlooAddress::Host("127.0.0.1".into())),
    };
    let ours = Arc::new(store.with_prefix("tch_parallel").map_err(failed)?);
    agreement::enrol(&ours).map_err(failed)?;
    let post_mortem = PostMortem::new(Arc::clone(&ours), rank, world_size).map_err(failed)?;
    let start = Instant::now();
    let engine = connect(&store, &address, &place).map_err(|error| {
        let absent = (start.elapsed() >= timeout).then(|| post_mortem.absent(timeout)).flatten();
        place.could_not_join(absent.as_deref().unwrap_or(error.message()))
    })?;
    Ok(ProcessGroup::new(place, engine, ours, post_mortem))
}

/// Connects to all other ranks, under the names by which Python's init_process_group keeps its
/// default group: a rank of either language finds the other's keys.
fn connect(
    store: &Store,
    address: &GlooAddress,
    place: &Place,
) -> Result<c10d_sys::ProcessGroup, c10d_sys::Error> {
    let store = store.with_prefix("default_pg")?.with_prefix("0/")?;
    let Place { rank, world_size, timeout, .. } = *place;
    match (place.backend, place.device) {
        #[cfg(feature = "cuda")]
        (Backend::Nccl, Device::Cuda(index)) => {
            c10d_sys::ProcessGroup::nccl(&store, rank, world_size, index, timeout)
        }
        _ => c10d_sys::ProcessGroup::gloo(&store, rank, world_size, address, timeout),
    }
}

impl Place {
    fn could_not_join(&self, message: &str) -> Error {
        Error::Rendezvous {
            rank: self.rank,
            world_size: self.world_size,
            operation: "join the group".into(),
            message: message.into(),
        }
    }
}
