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
/// kind. Where ranks use shared memory ([`transport`](Self::transport)), they compare their calls,
/// and a mistake is an error that says what two of them called. Over sockets gloo checks nothing:
/// different sizes abort the process with SIGABRT from one of gloo's threads, as in Python. With
/// `TORCH_DISTRIBUTED_DEBUG=DETAIL`, the ranks compare each operation first, and such a mistake is
/// an error there too. After a failed collective the group is unusable: end the program.
///
/// Tensors must be contiguous: instead of a view with gaps, such as a column (`t.select(1, 0)`),
/// exchange `t.contiguous()`. Rank arguments are ranks in this group: PyTorch's `group_src` and
/// `group_dst`.
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
/// Every collective returns [`Error::Collective`] if a rank has died or did not arrive within the
/// group's timeout, if the backend does not support the kind (`int16` with gloo), or if it does not
/// support the device (the CPU with NCCL). Before anything is exchanged, it returns
/// [`Error::Argument`] for a tensor that is not contiguous, for a rank that is not in the group,
/// and for [`ReduceOp::Avg`] of integers.
#[derive(Debug, Clone)]
#[doc(alias = "destroy_process_group")]
pub struct ProcessGroup {
    pub(super) inner: Arc<Inner>,
}

pub(super) struct Inner {
    pub(super) place: Place,
    /// `None` only while the group is being dropped.
    engine: Option<c10d_sys::ProcessGroup>,
    /// For what ranks of this library tell each other outside the engine.
    pub(super) store: Store,
    /// The number of agreements so far, which names the next one.
    pub(super) agreements: AtomicUsize,
    /// The number of groups made of this one's ranks, which names the next one.
    pub(super) groups: AtomicUsize,
    /// Finds the rank at fault when an exchange fails.
    pub(super) post_mortem: PostMortem,
    /// Whether some exchanges may never finish: one failed, or was not waited for.
    abandoned: AtomicBool,
}

/// Where in the group this rank is, and how it reaches the others.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    pub(super) rank: usize,
    pub(super) world_size: usize,
    /// This process's rank in the job, used in messages; its rank in the group may differ.
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
    /// A group of [`init_process_group`] contains all processes of the job. This one contains only
    /// the processes that call it: it waits for nobody else, and if one of its members dies, other
    /// groups go on. A process can be in several groups, each with its own prefix
    /// ([`Store::with_prefix`]), under which nothing else may be stored. PyTorch's counterpart is
    /// `init_process_group(store=…, rank=…, world_size=…)`.
    ///
    /// # Errors
    /// - [`Error::Argument`]: the rank is too large, or the device or the backend is not available.
    /// - [`Error::Rendezvous`]: a member did not arrive within the timeout.
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

    /// The number of this process in the group, from 0. `dist.get_rank()`.
    #[doc(alias = "get_rank")]
    pub fn rank(&self) -> usize {
        self.inner.place.rank
    }

    /// This process's rank in the job, used in messages; its rank in the group may differ.
    pub(super) fn job_rank(&self) -> usize {
        self.inner.place.job_rank
    }

    /// The number of processes in the group. `dist.get_world_size()`.
    #[doc(alias = "get_world_size")]
    pub fn world_size(&self) -> usize {
        self.inner.place.world_size
    }

    /// The number of this process on its host, from 0. It differs from [`rank`](Self::rank) if the
    /// job spans several hosts.
    pub fn local_rank(&self) -> usize {
        self.inner.place.local_rank
    }

    /// The device for this rank's tensors: the CPU, or the GPU with index LOCAL_RANK.
    pub fn device(&self) -> Device {
        self.inner.place.device
    }

    /// The device from which tensors are exchanged without a copy: the CPU with gloo, this rank's
    /// GPU with NCCL. For values outside the training itself, such as counts or sums of losses.
    pub fn exchange_device(&self) -> Device {
        match self.backend() {
            Backend::Gloo => Device::Cpu,
            Backend::Nccl => self.device(),
        }
    }

    /// The backend that moves the tensors. `dist.get_backend()`.
    #[doc(alias = "get_backend")]
    pub fn backend(&self) -> Backend {
        self.inner.place.backend
    }

    /// Reduces `tensor` over all ranks, element by element, in place on every rank. Its shape can
    /// be any, but must be the same on all ranks. `dist.all_reduce`.
    ///
    /// # Errors
    /// Those of [every collective](Self#errors).
    pub fn all_reduce(&self, tensor: &mut Tensor, op: ReduceOp) -> Result<()> {
        check_reduction(tensor, op)?;
        self.run("all_reduce", self.engine().all_reduce(tensor, op))
    }

    /// [`all_reduce`](Self::all_reduce) that returns before it has finished.
    /// `dist.all_reduce(tensor, async_op=True)`.
    ///
    /// # Errors
    /// Those of [every collective](Self#errors); later failures are returned by [`Pending::wait`].
    #[doc(alias = "async_op")]
    pub fn all_reduce_async(&self, tensor: Tensor, op: ReduceOp) -> Result<Pending<Tensor>> {
        check_reduction(&tensor, op)?;
        let work = self.engine().all_reduce_async(&tensor, op);
        self.pending("all_reduce", tensor, work)
    }

    /// Copies `tensor` of rank `src` into that of every other rank, which must have the same shape
    /// and kind. `dist.broadcast`.
    ///
    /// # Errors
    /// Those of [every collective](Self#errors).
    pub fn broadcast(&self, tensor: &mut Tensor, src: usize) -> Result<()> {
        self.check_rank("src", src)?;
        check_contiguous(tensor)?;
        self.run("broadcast", self.engine().broadcast(tensor, src))
    }

    /// Reduces `tensor` over all ranks into that of rank `dst`. The other ranks' tensors are
    /// undefined afterwards. `dist.reduce`.
    ///
    /// # Errors
    /// Those of [every collective](Self#errors).
    pub fn reduce(&self, tensor: &mut Tensor, dst: usize, op: ReduceOp) -> Result<()> {
        self.check_rank("dst", dst)?;
        check_reduction(tensor, op)?;
        self.run("reduce", self.engine().reduce(tensor, dst, op))
    }

    /// The tensors of all ranks, in the order of ranks, on every rank: one per rank, each with the
    /// shape of `tensor`, which must be the same on all ranks. `dist.all_gather`.
    ///
    /// # Errors
    /// Those of [every collective](Self#errors).
    pub fn all_gather(&self, tensor: &Tensor) -> Result<Vec<Tensor>> {
        check_contiguous(tensor)?;
        let outputs: Vec<_> = (0..self.world_size()).map(|_| tensor.empty_like()).collect();
        self.run("all_gather", self.engine().all_gather(&outputs, tensor))?;
        Ok(outputs)
    }

    /// Returns when every rank has arrived. `dist.barrier`.
    ///
    /// # Errors
    /// Those of [every collective](Self#errors).
    pub fn barrier(&self) -> Result<()> {
        self.run("barrier", self.engine().barrier())
    }

    /// A [`barrier`](Self::barrier) whose error, on rank 0, names every rank that did not arrive
    /// within `timeout`. Gloo only. `dist.monitored_barrier(wait_all_ranks=True)`.
    ///
    /// # Errors
    /// [`Error::Collective`] if a rank does not arrive in time, and with NCCL.
    pub fn monitored_barrier(&self, timeout: Duration) -> Result<()> {
        self.engine()
            .monitored_barrier(timeout, true)
            .map_err(|error| self.failed("monitored_barrier", &error))
    }

    pub(super) fn engine(&self) -> &c10d_sys::ProcessGroup {
        self.inner.engine()
    }

    /// The error for an operation that the engine could not carry out, with the rank at fault.
    pub(super) fn failed(&self, operation: &'static str, error: &c10d_sys::Error) -> Error {
        if !may_be_anothers_fault(error) {
            return self.failed_here(operation, error.message());
        }
        self.abandon();
        let blame = self.inner.post_mortem.blame();
        let rank = self.job_rank();
        Error::Collective { rank, operation, message: error.message().to_owned(), blame }
    }

    /// The error for an operation that failed on this rank alone.
    pub(super) fn failed_here(&self, operation: &'static str, message: &str) -> Error {
        // Without a report, the others would only notice that this rank is gone.
        self.report(message);
        let rank = self.job_rank();
        Error::Collective { rank, operation, message: message.to_owned(), blame: None }
    }

    /// From now on the group is leaked instead of destroyed.
    pub(super) fn abandon(&self) {
        self.inner.abandoned.store(true, Ordering::Relaxed);
    }

    /// Whether an exchange has failed, in which case this rank may be the victim of another.
    pub(super) fn is_abandoned(&self) -> bool {
        self.inner.abandoned.load(Ordering::Relaxed)
    }

    /// Lets the other ranks report this rank's failure as the cause of theirs.
    pub(crate) fn report(&self, fault: &str) {
        self.abandon();
        self.inner.post_mortem.report(fault);
    }

    /// Copies the tensors of rank `src` into those of every other rank, through buffers of
    /// `buffer_bytes`. `dist._broadcast_coalesced`.
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

    pub(super) fn run(
        &self,
        operation: &'static str,
        outcome: Result<(), c10d_sys::Error>,
    ) -> Result<()> {
        outcome.map_err(|error| self.failed(operation, &error))
    }

    pub(super) fn pending<T>(
        &self,
        operation: &'static str,
        value: T,
        work: Result<Work, c10d_sys::Error>,
    ) -> Result<Pending<T>> {
        let work = work.map_err(|error| self.failed(operation, &error))?;
        Ok(Pending::new(value, work, self.clone(), operation))
    }
}

impl Inner {
    pub(super) fn engine(&self) -> &c10d_sys::ProcessGroup {
        match &self.engine {
            Some(engine) => engine,
            // Only `drop` takes it, when no group is left to call this.
            None => unreachable!("a group in use has an engine"),
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Some(engine) = self.engine.take()
            && (self.abandoned.load(Ordering::Relaxed) || std::thread::panicking())
        {
            // The destructor would wait for exchanges that never finish.
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
        f.debug_struct("Inner")
            .field("place", &self.place)
            .field("transport", &self.transport())
            .finish_non_exhaustive()
    }
}
