//! The ranks of a job and their collectives: `torch.distributed`.

use super::arguments::{check_contiguous, check_reduction};
use super::device::Backend;
use super::init::{self, ProcessGroupOptions, init_process_group};
use super::pending::Pending;
use super::post_mortem::{PostMortem, may_be_anothers_fault};
use super::store::Store;
use crate::data::Shard;
use crate::{Error, Result};
use c10d_sys::{ReduceOp, Work};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use tch::{Device, Tensor};

/// The ranks of a job, and how they exchange tensors. Clones share the group.
///
/// All ranks must call the same collectives in the same order, with tensors of the same shape and
/// kind. Gloo does not check this: sizes that differ end the process by SIGABRT, from a thread of
/// gloo's own, as they do in Python. With gloo and `TORCH_DISTRIBUTED_DEBUG=DETAIL` all ranks compare
/// what they are about to do, and such a mistake is an error. A failed collective leaves the group
/// unusable: end the program.
///
/// Tensors must be contiguous: in the place of a view with gaps, a column (`t.select(1, 0)`) say,
/// exchange `t.contiguous()`. Where a rank is an argument, it is that in this group: PyTorch's
/// `group_src` and `group_dst`.
///
/// ```
/// use tch::Tensor;
/// use tch_parallel::distributed::{ProcessGroup, ReduceOp};
///
/// let group = ProcessGroup::from_env()?; // without a launcher: a world of one
/// let mut loss = Tensor::from_slice(&[2.0f32, 4.0]).to_device(group.device());
/// group.all_reduce(&mut loss, ReduceOp::Sum)?;
/// let mean = loss / group.world_size() as f64;
/// assert_eq!(Vec::<f32>::try_from(&mean)?, [2.0, 4.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// Every collective gives [`Error::Collective`] when a rank has died or has not come within the
/// group's timeout, and for a kind that the backend does not know (`int16` with gloo) or a device that
/// it does not reach (the CPU with NCCL). It gives [`Error::Argument`], before anything is exchanged,
/// for a tensor that is not contiguous, for a rank that the group does not have, and for
/// [`ReduceOp::Avg`] of integers.
#[derive(Debug, Clone)]
#[doc(alias = "destroy_process_group")]
pub struct ProcessGroup {
    pub(super) inner: Arc<Inner>,
}

pub(super) struct Inner {
    pub(super) place: Place,
    /// None only while the group is dropped.
    engine: Option<c10d_sys::ProcessGroup>,
    /// For what ranks of this library tell each other beside the engine.
    pub(super) store: Store,
    /// How many agreements there have been, which gives each its name.
    pub(super) agreements: AtomicUsize,
    /// How many groups have been made of this one's ranks, which gives each its name.
    pub(super) groups: AtomicUsize,
    /// Finds out who is to blame when an exchange fails.
    pub(super) post_mortem: PostMortem,
    /// Whether exchanges may be in flight that can never end: one has failed, or was not waited for.
    abandoned: AtomicBool,
}

/// Where in the group this rank is, and how it reaches the others.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    pub(super) rank: usize,
    pub(super) world_size: usize,
    /// The rank by which the job knows this process, in messages: that of a group may be another.
    pub(super) job_rank: usize,
    pub(super) local_rank: usize,
    pub(super) device: Device,
    pub(super) backend: Backend,
    pub(super) timeout: Duration,
}

impl ProcessGroup {
    pub(super) fn new(
        place: Place,
        engine: c10d_sys::ProcessGroup,
        store: Store,
        post_mortem: PostMortem,
    ) -> ProcessGroup {
        let inner = Inner {
            place,
            engine: Some(engine),
            store,
            agreements: AtomicUsize::new(0),
            groups: AtomicUsize::new(0),
            post_mortem,
            abandoned: AtomicBool::new(false),
        };
        ProcessGroup { inner: Arc::new(inner) }
    }

    /// [`init_process_group`] with its defaults.
    ///
    /// # Errors
    /// Those of [`init_process_group`].
    pub fn from_env() -> Result<ProcessGroup> {
        init_process_group(ProcessGroupOptions::default())
    }

    /// Makes this process rank `rank` of the `world_size` that call this with the same store.
    ///
    /// A group of [`init_process_group`] holds all processes of the job. Such a one holds those
    /// that want it: it waits for nobody else, and when one of its members dies, other groups go
    /// on. A process may be in several, each with a prefix of its own
    /// ([`Store::with_prefix`]), under which nothing else may be kept.
    /// PyTorch's counterpart is `init_process_group(store=…, rank=…, world_size=…)`.
    ///
    /// # Errors
    /// - [`Error::Argument`]: there is no such rank, or the device or the backend is not to be had.
    /// - [`Error::Rendezvous`]: a member did not come within the timeout.
    pub fn with_store(
        store: &Store,
        rank: usize,
        world_size: usize,
        options: ProcessGroupOptions,
    ) -> Result<ProcessGroup> {
        if rank >= world_size {
            return Err(Error::Argument {
                what: "rank".into(),
                found: rank.to_string(),
                expected: format!("below world_size, which is {world_size}"),
            });
        }
        init::join(store, rank, world_size, options)
    }

    /// This process among those of the group, from 0. `dist.get_rank()`.
    #[doc(alias = "get_rank")]
    pub fn rank(&self) -> usize {
        self.inner.place.rank
    }

    /// The rank by which the job knows this process, for messages: that of a group may be another.
    pub(super) fn job_rank(&self) -> usize {
        self.inner.place.job_rank
    }

    /// How many processes the group has. `dist.get_world_size()`.
    #[doc(alias = "get_world_size")]
    pub fn world_size(&self) -> usize {
        self.inner.place.world_size
    }

    /// This process among those of its host, from 0. Not the same as [`rank`](Self::rank) where
    /// the job spans several hosts.
    pub fn local_rank(&self) -> usize {
        self.inner.place.local_rank
    }

    /// Where this rank's tensors are to live: the CPU, or the GPU with the number LOCAL_RANK.
    pub fn device(&self) -> Device {
        self.inner.place.device
    }

    /// Where a tensor can be exchanged without being copied first: with gloo the CPU, with NCCL this
    /// rank's GPU. For numbers that are no part of the training, counts or sums of losses.
    pub fn exchange_device(&self) -> Device {
        match self.backend() {
            Backend::Gloo => Device::Cpu,
            Backend::Nccl => self.device(),
        }
    }

    /// Who moves the tensors. `dist.get_backend()`.
    #[doc(alias = "get_backend")]
    pub fn backend(&self) -> Backend {
        self.inner.place.backend
    }

    /// Combines `tensor` over all ranks, element by element, in place on every one. It may be of any
    /// shape, the same on all ranks. `dist.all_reduce`.
    ///
    /// # Errors
    /// As of [every collective](Self#errors).
    pub fn all_reduce(&self, tensor: &mut Tensor, op: ReduceOp) -> Result<()> {
        check_reduction(tensor, op)?;
        self.run("all_reduce", self.engine().all_reduce(tensor, op))
    }

    /// [`all_reduce`](Self::all_reduce) that returns before it has ended.
    /// `dist.all_reduce(tensor, async_op=True)`.
    ///
    /// # Errors
    /// As of [every collective](Self#errors); what goes wrong later, [`Pending::wait`] reports.
    #[doc(alias = "async_op")]
    pub fn all_reduce_async(&self, tensor: Tensor, op: ReduceOp) -> Result<Pending<Tensor>> {
        check_reduction(&tensor, op)?;
        let work = self.engine().all_reduce(&tensor, op);
        self.pending("all_reduce", tensor, work)
    }

    /// Copies `tensor` of rank `src` into that of every other rank, which must have its shape and
    /// kind. `dist.broadcast`.
    ///
    /// # Errors
    /// As of [every collective](Self#errors).
    pub fn broadcast(&self, tensor: &mut Tensor, src: usize) -> Result<()> {
        self.check_rank("src", src)?;
        check_contiguous(tensor)?;
        self.run("broadcast", self.engine().broadcast(tensor, src))
    }

    /// Combines `tensor` over all ranks into that of rank `dst`. What the other ranks' tensors hold
    /// afterwards is not the result. `dist.reduce`.
    ///
    /// # Errors
    /// As of [every collective](Self#errors).
    pub fn reduce(&self, tensor: &mut Tensor, dst: usize, op: ReduceOp) -> Result<()> {
        self.check_rank("dst", dst)?;
        check_reduction(tensor, op)?;
        self.run("reduce", self.engine().reduce(tensor, dst, op))
    }

    /// The tensors of all ranks, in the order of ranks, on every rank: as many as there are ranks,
    /// each of the shape of `tensor`, which must be the same on all. `dist.all_gather`.
    ///
    /// # Errors
    /// As of [every collective](Self#errors).
    pub fn all_gather(&self, tensor: &Tensor) -> Result<Vec<Tensor>> {
        check_contiguous(tensor)?;
        let outputs: Vec<_> = (0..self.world_size()).map(|_| tensor.empty_like()).collect();
        self.run("all_gather", self.engine().all_gather(&outputs, tensor))?;
        Ok(outputs)
    }

    /// Sends `tensor` to rank `dst`, which must call [`recv`](Self::recv). `dist.send`.
    ///
    /// A `dst` that ends makes this fail at once, as a rule. But if it ends right after it has asked
    /// for the tensor, gloo forgets to tell, and this fails only after the group's timeout.
    ///
    /// # Errors
    /// As of [every collective](Self#errors), and [`Error::Argument`] if `dst` is this rank itself.
    pub fn send(&self, tensor: &Tensor, dst: usize) -> Result<()> {
        self.check_peer("dst", dst)?;
        self.check_message(tensor)?;
        self.run("send", self.engine().send(tensor, dst, 0))
    }

    /// Receives a tensor from rank `src` into `tensor`, whose shape and kind must be those of the
    /// tensor sent. `dist.recv`.
    ///
    /// # Errors
    /// As those of [`send`](Self::send).
    pub fn recv(&self, tensor: &mut Tensor, src: usize) -> Result<()> {
        self.check_peer("src", src)?;
        self.check_message(tensor)?;
        self.run("recv", self.engine().recv(tensor, src, 0))
    }

    /// [`send`](Self::send) that returns before it has ended. `dist.isend`.
    ///
    /// # Errors
    /// As those of [`send`](Self::send); what goes wrong later, [`Pending::wait`] reports.
    pub fn isend(&self, tensor: Tensor, dst: usize) -> Result<Pending<Tensor>> {
        self.check_peer("dst", dst)?;
        self.check_message(&tensor)?;
        let work = self.engine().send(&tensor, dst, 0);
        self.pending("isend", tensor, work)
    }

    /// [`recv`](Self::recv) that returns before it has ended. `dist.irecv`.
    ///
    /// # Errors
    /// As those of [`send`](Self::send); what goes wrong later, [`Pending::wait`] reports.
    pub fn irecv(&self, tensor: Tensor, src: usize) -> Result<Pending<Tensor>> {
        self.check_peer("src", src)?;
        self.check_message(&tensor)?;
        let work = self.engine().recv(&tensor, src, 0);
        self.pending("irecv", tensor, work)
    }

    /// Returns when every rank has come here. `dist.barrier`.
    ///
    /// # Errors
    /// As of [every collective](Self#errors).
    pub fn barrier(&self) -> Result<()> {
        self.run("barrier", self.engine().barrier())
    }

    /// A [`barrier`](Self::barrier) whose error, on rank 0, names every rank that has not come
    /// within `timeout`. Gloo only. `dist.monitored_barrier(wait_all_ranks=True)`.
    ///
    /// # Errors
    /// [`Error::Collective`] when a rank has not come in time, and with NCCL.
    pub fn monitored_barrier(&self, timeout: Duration) -> Result<()> {
        self.engine()
            .monitored_barrier(timeout, true)
            .map_err(|error| self.failed("monitored_barrier", &error))
    }

    pub(super) fn engine(&self) -> &c10d_sys::ProcessGroup {
        match &self.inner.engine {
            Some(engine) => engine,
            // Only `Inner::drop` takes it, when no group is left that could call this.
            None => unreachable!("a group in use has an engine"),
        }
    }

    /// The error for an operation that the engine could not carry out, with whoever is to blame.
    pub(super) fn failed(&self, operation: &'static str, error: &c10d_sys::Error) -> Error {
        if !may_be_anothers_fault(error) {
            return self.failed_here(operation, error.message());
        }
        self.abandon();
        let blame = self.inner.post_mortem.blame();
        let rank = self.job_rank();
        Error::Collective { rank, operation, message: error.message().to_owned(), blame }
    }

    /// The error for an operation that failed by this rank's own fault.
    pub(super) fn failed_here(&self, operation: &'static str, message: &str) -> Error {
        // The others will only notice that this rank has gone.
        self.report(message);
        let rank = self.job_rank();
        Error::Collective { rank, operation, message: message.to_owned(), blame: None }
    }

    /// From now on the group is left behind instead of destroyed.
    pub(super) fn abandon(&self) {
        self.inner.abandoned.store(true, Ordering::Relaxed);
    }

    /// Whether an exchange has failed: this rank may be the victim of another.
    pub(super) fn is_abandoned(&self) -> bool {
        self.inner.abandoned.load(Ordering::Relaxed)
    }

    /// Lets the other ranks name this rank's fault as the reason of their failure.
    pub(crate) fn report(&self, fault: &str) {
        self.abandon();
        self.inner.post_mortem.report(fault);
    }

    /// Copies the tensors of rank `src` into those of every other rank, through buffers of so many
    /// bytes. `dist._broadcast_coalesced`.
    pub(crate) fn broadcast_coalesced(
        &self,
        operation: &'static str,
        tensors: &[Tensor],
        buffer_bytes: usize,
        src: usize,
    ) -> Result<()> {
        self.engine()
            .broadcast_coalesced(tensors, buffer_bytes, src)
            .map_err(|error| self.failed(operation, &error))
    }

    fn run(&self, operation: &'static str, work: Result<Work, c10d_sys::Error>) -> Result<()> {
        work.and_then(Work::wait).map_err(|error| self.failed(operation, &error))
    }

    fn pending<T>(
        &self,
        operation: &'static str,
        value: T,
        work: Result<Work, c10d_sys::Error>,
    ) -> Result<Pending<T>> {
        let work = work.map_err(|error| self.failed(operation, &error))?;
        Ok(Pending::new(value, work, self.clone(), operation))
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Some(engine) = self.engine.take()
            && (self.abandoned.load(Ordering::Relaxed) || std::thread::panicking())
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
        self.place.fmt(f)
    }
}
