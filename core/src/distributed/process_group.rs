//! `init_process_group` and the collectives: `torch.distributed`.

use super::agreement;
use super::env::Env;
use super::pending::Pending;
use super::post_mortem::PostMortem;
use super::rendezvous;
use crate::data::Shard;
use crate::{Error, Result};
use c10d_sys::{GlooAddress, ReduceOp, Store, Work};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use tch::{Cuda, Device, Tensor};

/// Who moves the tensors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backend {
    /// TCP between hosts and processes; for CPU tensors, and for CUDA tensors by way of the CPU.
    Gloo,
    /// NVIDIA's library, from GPU to GPU; every rank needs a GPU of its own.
    Nccl,
}

/// On which device a rank trains.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DeviceChoice {
    /// A GPU where there is one, else the CPU.
    #[default]
    Auto,
    /// The CPU.
    Cpu,
    /// The GPU with the number LOCAL_RANK.
    Cuda,
}

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
    let local_rank = env.as_ref().map_or(0, |env| env.local_rank);
    let (device, backend) = choose_device(options, local_rank)?;
    let (rank, world_size) = env.as_ref().map_or((0, 1), |env| (env.rank, env.world_size));

    let (store, address) = match &env {
        Some(env) => (rendezvous::store(env, options.timeout)?, rendezvous::gloo_address(env)?),
        None => (
            Store::hash().map_err(|e| rendezvous_failed(0, 1, e.message()))?,
            GlooAddress::Host("127.0.0.1".into()),
        ),
    };
    let ours = store
        .with_prefix("tch_parallel")
        .and_then(|ours| agreement::enrol(&ours).map(|()| Arc::new(ours)))
        .map_err(|error| rendezvous_failed(rank, world_size, error.message()))?;
    let post_mortem = PostMortem::new(Arc::clone(&ours), rank, world_size)
        .map_err(|error| rendezvous_failed(rank, world_size, error.message()))?;
    let engine = connect(&store, rank, world_size, backend, device, &address, options.timeout)
        .map_err(|error| {
            let absent = post_mortem.absent(error.message(), options.timeout);
            rendezvous_failed(rank, world_size, absent.as_deref().unwrap_or(error.message()))
        })?;
    Ok(ProcessGroup {
        inner: Arc::new(Inner {
            engine: Some(engine),
            store: ours,
            agreements: AtomicUsize::new(0),
            post_mortem,
            timeout: options.timeout,
            failed: AtomicBool::new(false),
            rank,
            world_size,
            local_rank,
            device,
            backend,
        }),
    })
}

fn connect(
    store: &Store,
    rank: usize,
    world_size: usize,
    backend: Backend,
    device: Device,
    address: &GlooAddress,
    timeout: Duration,
) -> Result<c10d_sys::ProcessGroup, c10d_sys::Error> {
    // The prefixes under which Python's init_process_group keeps its default group: a rank of
    // either language finds the other's keys.
    let store = store.with_prefix("default_pg")?.with_prefix("0/")?;
    let engine = c10d_sys::ProcessGroup::new(&store, rank, world_size)?;
    match (backend, device) {
        #[cfg(feature = "cuda")]
        (Backend::Nccl, Device::Cuda(index)) => engine.add_nccl(index, timeout)?,
        _ => engine.add_gloo(address, timeout)?,
    }
    Ok(engine)
}

fn rendezvous_failed(rank: usize, world_size: usize, message: &str) -> Error {
    Error::Rendezvous {
        rank,
        world_size,
        operation: "join the group".into(),
        message: message.into(),
    }
}

fn choose_device(options: ProcessGroupOptions, local_rank: usize) -> Result<(Device, Backend)> {
    let gpus = if cfg!(feature = "cuda") { Cuda::device_count().max(0) as usize } else { 0 };
    let cuda = match options.device {
        DeviceChoice::Cpu => false,
        DeviceChoice::Auto => gpus > 0,
        DeviceChoice::Cuda => true,
    };
    if !cuda {
        return match options.backend {
            None | Some(Backend::Gloo) => Ok((Device::Cpu, Backend::Gloo)),
            Some(Backend::Nccl) => Err(Error::Argument {
                what: "backend".into(),
                found: "nccl".into(),
                expected: "gloo where the device is cpu: NCCL moves CUDA tensors only".into(),
            }),
        };
    }
    if gpus == 0 {
        let expected = if cfg!(feature = "cuda") {
            "cpu: PyTorch finds no GPU on this host"
        } else {
            "cpu: this program was built without the feature `cuda`"
        };
        return Err(Error::Argument {
            what: "device".into(),
            found: "cuda".into(),
            expected: expected.into(),
        });
    }
    let backend = options.backend.unwrap_or(Backend::Nccl);
    if backend == Backend::Nccl && local_rank >= gpus {
        return Err(Error::Argument {
            what: "LOCAL_RANK".into(),
            found: local_rank.to_string(),
            expected: format!(
                "below {gpus}, the number of GPUs here: NCCL needs one for every rank; with the \
                 backend gloo ranks may share one"
            ),
        });
    }
    Ok((Device::Cuda(local_rank % gpus), backend))
}

/// The ranks of a job, and how they exchange tensors. Clones share the group.
///
/// All ranks must call the same collectives in the same order, with tensors of the same shape and
/// kind. A failed collective leaves the group unusable: end the program.
#[derive(Debug, Clone)]
pub struct ProcessGroup {
    inner: Arc<Inner>,
}

struct Inner {
    /// None only while the group is dropped.
    engine: Option<c10d_sys::ProcessGroup>,
    /// For what ranks of this library tell each other beside the engine.
    store: Arc<Store>,
    /// How many agreements there have been, which gives each its name.
    agreements: AtomicUsize,
    /// Finds out who is to blame when an exchange fails.
    post_mortem: PostMortem,
    timeout: Duration,
    /// Whether an exchange has failed: then others may be in flight that can never end.
    failed: AtomicBool,
    rank: usize,
    world_size: usize,
    local_rank: usize,
    device: Device,
    backend: Backend,
}

impl ProcessGroup {
    /// [`init_process_group`] with its defaults.
    pub fn from_env() -> Result<ProcessGroup> {
        init_process_group(ProcessGroupOptions::default())
    }

    /// This process among all of the job, from 0. `dist.get_rank()`.
    pub fn rank(&self) -> usize {
        self.inner.rank
    }

    /// How many processes the job has. `dist.get_world_size()`.
    pub fn world_size(&self) -> usize {
        self.inner.world_size
    }

    /// This process among those of its host, from 0. Not the same as [`rank`](Self::rank) where
    /// the job spans several hosts.
    pub fn local_rank(&self) -> usize {
        self.inner.local_rank
    }

    /// Where this rank's tensors are to live.
    pub fn device(&self) -> Device {
        self.inner.device
    }

    /// Who moves the tensors. `dist.get_backend()`.
    pub fn backend(&self) -> Backend {
        self.inner.backend
    }

    /// Combines `tensor` over all ranks, in place on every one. `dist.all_reduce`.
    pub fn all_reduce(&self, tensor: &mut Tensor, op: ReduceOp) -> Result<()> {
        self.run("all_reduce", self.engine().all_reduce(tensor, op))
    }

    /// [`all_reduce`](Self::all_reduce) that returns before it has ended. `async_op=True`.
    pub fn all_reduce_async(&self, tensor: Tensor, op: ReduceOp) -> Result<Pending<Tensor>> {
        let work = self.engine().all_reduce(&tensor, op);
        self.pending("all_reduce", tensor, work)
    }

    /// Copies `tensor` of rank `src` into that of every other rank. `dist.broadcast`.
    pub fn broadcast(&self, tensor: &mut Tensor, src: usize) -> Result<()> {
        self.check_rank("src", src)?;
        self.run("broadcast", self.engine().broadcast(tensor, src))
    }

    /// Combines `tensor` over all ranks into that of rank `dst`. What the other ranks' tensors hold
    /// afterwards is not the result. `dist.reduce`.
    pub fn reduce(&self, tensor: &mut Tensor, dst: usize, op: ReduceOp) -> Result<()> {
        self.check_rank("dst", dst)?;
        self.run("reduce", self.engine().reduce(tensor, dst, op))
    }

    /// The tensors of all ranks, in the order of ranks, on every rank. `dist.all_gather`.
    pub fn all_gather(&self, tensor: &Tensor) -> Result<Vec<Tensor>> {
        let outputs: Vec<_> = (0..self.world_size()).map(|_| tensor.empty_like()).collect();
        self.run("all_gather", self.engine().all_gather(&outputs, tensor))?;
        Ok(outputs)
    }

    /// Sends `tensor` to rank `dst`, which must call [`recv`](Self::recv). `dist.send`.
    pub fn send(&self, tensor: &Tensor, dst: usize) -> Result<()> {
        self.check_peer("dst", dst)?;
        self.run("send", self.engine().send(tensor, dst, 0))
    }

    /// Receives a tensor from rank `src` into `tensor`, whose shape must be that of the tensor
    /// sent. `dist.recv`.
    pub fn recv(&self, tensor: &mut Tensor, src: usize) -> Result<()> {
        self.check_peer("src", src)?;
        self.run("recv", self.engine().recv(tensor, src, 0))
    }

    /// [`send`](Self::send) that returns before it has ended. `dist.isend`.
    pub fn isend(&self, tensor: Tensor, dst: usize) -> Result<Pending<Tensor>> {
        self.check_peer("dst", dst)?;
        let work = self.engine().send(&tensor, dst, 0);
        self.pending("isend", tensor, work)
    }

    /// [`recv`](Self::recv) that returns before it has ended. `dist.irecv`.
    pub fn irecv(&self, tensor: Tensor, src: usize) -> Result<Pending<Tensor>> {
        self.check_peer("src", src)?;
        let work = self.engine().recv(&tensor, src, 0);
        self.pending("irecv", tensor, work)
    }

    /// Returns when every rank has come here. `dist.barrier`.
    pub fn barrier(&self) -> Result<()> {
        self.run("barrier", self.engine().barrier())
    }

    /// A [`barrier`](Self::barrier) whose error, on rank 0, names every rank that has not come
    /// within `timeout`. Gloo only. `dist.monitored_barrier(wait_all_ranks=True)`.
    pub fn monitored_barrier(&self, timeout: Duration) -> Result<()> {
        self.engine()
            .monitored_barrier(timeout, true)
            .map_err(|error| self.failed("monitored_barrier", error.message()))
    }

    pub(super) fn engine(&self) -> &c10d_sys::ProcessGroup {
        match &self.inner.engine {
            Some(engine) => engine,
            // Only `Inner::drop` takes it, when no group is left that could call this.
            None => unreachable!("a group in use has an engine"),
        }
    }

    /// The error for an operation that could not be carried out, with whoever is to blame.
    pub(super) fn failed(&self, operation: &'static str, message: &str) -> Error {
        self.inner.failed.store(true, Ordering::Relaxed);
        Error::Collective {
            rank: self.rank(),
            operation,
            message: message.to_owned(),
            blame: self.inner.post_mortem.blame(message),
        }
    }

    /// Tells every rank of it if one has something against going on. A collective.
    pub(super) fn agree(&self, operation: &'static str, objection: Option<&str>) -> Result<()> {
        let subject = self.inner.agreements.fetch_add(1, Ordering::Relaxed).to_string();
        let verdict = agreement::objection(
            &self.inner.store,
            &subject,
            self.rank(),
            objection,
            self.inner.timeout,
        )
        .map_err(|error| self.failed(operation, error.message()))?;
        match verdict {
            None => Ok(()),
            Some(message) => {
                self.inner.failed.store(true, Ordering::Relaxed);
                Err(Error::Collective { rank: self.rank(), operation, message, blame: None })
            }
        }
    }

    /// Lets the other ranks name this rank's fault as the reason of their failure.
    pub(super) fn report(&self, fault: &str) {
        self.inner.failed.store(true, Ordering::Relaxed);
        self.inner.post_mortem.report(fault);
    }

    fn run(&self, operation: &'static str, work: Result<Work, c10d_sys::Error>) -> Result<()> {
        work.and_then(Work::wait).map_err(|error| self.failed(operation, error.message()))
    }

    fn pending<T>(
        &self,
        operation: &'static str,
        value: T,
        work: Result<Work, c10d_sys::Error>,
    ) -> Result<Pending<T>> {
        let work = work.map_err(|error| self.failed(operation, error.message()))?;
        Ok(Pending::new(value, work, self.clone(), operation))
    }

    fn check_rank(&self, what: &str, rank: usize) -> Result<()> {
        if rank < self.world_size() {
            return Ok(());
        }
        Err(Error::Argument {
            what: what.into(),
            found: format!("rank {rank}"),
            expected: format!("a rank below the world size, {}", self.world_size()),
        })
    }

    fn check_peer(&self, what: &str, rank: usize) -> Result<()> {
        self.check_rank(what, rank)?;
        if rank != self.rank() {
            return Ok(());
        }
        Err(Error::Argument {
            what: what.into(),
            found: format!("rank {rank}, this rank itself"),
            expected: "another rank".into(),
        })
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Some(engine) = self.engine.take()
            && self.failed.load(Ordering::Relaxed)
        {
            // The destructor would wait for exchanges that can never end.
            engine.leak();
        }
    }
}

impl From<&ProcessGroup> for Shard {
    fn from(group: &ProcessGroup) -> Shard {
        Shard { rank: group.rank(), num_replicas: group.world_size() }
    }
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProcessGroup")
            .field("rank", &self.rank)
            .field("world_size", &self.world_size)
            .field("device", &self.device)
            .field("backend", &self.backend)
            .finish_non_exhaustive()
    }
}

impl FromStr for Backend {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "gloo" => Ok(Backend::Gloo),
            "nccl" => Ok(Backend::Nccl),
            other => Err(Error::Argument {
                what: "backend".into(),
                found: format!("{other:?}"),
                expected: "gloo or nccl".into(),
            }),
        }
    }
}

impl FromStr for DeviceChoice {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "auto" => Ok(DeviceChoice::Auto),
            "cpu" => Ok(DeviceChoice::Cpu),
            "cuda" => Ok(DeviceChoice::Cuda),
            other => Err(Error::Argument {
                what: "device".into(),
                found: format!("{other:?}"),
                expected: "cpu, cuda or auto".into(),
            }),
        }
    }
}
