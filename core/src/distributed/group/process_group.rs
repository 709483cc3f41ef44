//! The ranks of a job: `torch.distributed`.

use super::{destroy::destroy, device::Backend, place::Place, store::Store, transport::Transport};
use crate::distributed::fault::post_mortem::PostMortem;
use crate::distributed::fault::watch::{self, Watch};
use crate::distributed::fault::{nccl_watch, record, unfinished::Unfinished};
use crate::{Error, Result, data::Shard};
use c10d_sys::{Call, LONGEST_TIMEOUT};
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU8, AtomicUsize};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;
use tch::{Device, Kind, Tensor};

/// The ranks of a job, and how they exchange tensors. Clones share the group.
///
/// All ranks must call the same collectives in the same order, with tensors of the same shape and kind. Where ranks use
/// shared memory ([`transport`](Self::transport)), they compare their calls, and a mistake is an error that says what
/// two of them called. Over sockets gloo checks nothing: different sizes abort the process with SIGABRT from one of
/// gloo's threads, as in Python. With `TORCH_DISTRIBUTED_DEBUG=DETAIL`, the ranks compare each operation first, and
/// such a mistake is an error there too. After a failed collective the group is unusable: end the program.
///
/// Tensors are exchanged element by element, in row-major order, whatever their strides. One with gaps, such as
/// `t.select(1, 0)`, or whose values are only marked as negated or conjugated, is exchanged through a contiguous copy;
/// Python exchanges what lies in the gaps, and ignores the marks. Complex numbers are pairs of real ones.
///
/// Each collective has a form that returns before it has finished (`all_reduce_async`), with a
/// [`Pending`](crate::distributed::Pending) to wait for. Rank arguments are ranks in this group: PyTorch's
/// `group_src` and `group_dst`. Ranks that run Python can take part in everything but the exchange
/// of [objects](Self::all_gather_object), [`new_group`](Self::new_group) with them as members, and
/// [`checkpoint::Training`](crate::checkpoint::Training): these calls return an error at once.
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
/// Every collective returns [`Error::Collective`] if a rank has died or did not arrive within the timeout
/// ([`with_timeout`](Self::with_timeout)), if the backend does not support the kind (`int16` with gloo), or if it does
/// not support the device (the CPU with NCCL). Before anything is exchanged, it returns [`Error::Argument`] for a rank
/// that is not in the group, for a list without one tensor per rank, for shapes and kinds that do not fit together, for
/// a result whose elements share memory (`expand`), and for a [`ReduceOp`](crate::distributed::ReduceOp) that does not
/// suit the kind: `Avg` of integers, `Band`, `Bor` and `Bxor` of anything else, and all but `Sum` and `Avg` of complex
/// numbers. If an asynchronous call fails after it has returned, `Pending::wait` returns the error.
#[derive(Debug, Clone)]
#[doc(alias = "destroy_process_group")]
pub struct ProcessGroup {
    pub(crate) inner: Arc<Inner>,
    /// If other than the group's.
    pub(crate) timeout: Option<Duration>,
    pub(crate) tag: i32,
    /// Whether calls on this handle wait on the host, even with NCCL.
    pub(crate) is_on_host: bool,
    /// Whether operations started on this handle go on while this thread does something else.
    pub(crate) is_async: bool,
}

pub(crate) struct Inner {
    pub(crate) place: Place,
    engine: c10d_sys::ProcessGroup,
    /// `None` while the group is being dropped, and for a world of one.
    watch: Option<Watch>,
    /// For what ranks of this library tell each other outside the engine.
    pub(crate) store: Store,
    /// The number of agreements so far, which names the next one.
    pub(crate) agreements: AtomicUsize,
    /// The number of the last group made of each set of this one's ranks.
    pub(crate) groups: Mutex<HashMap<Vec<usize>, usize>>,
    /// The order of gradients in the buckets of a training that goes on with other ranks.
    pub(crate) bucket_order: OnceLock<Vec<String>>,
    /// In such a training, the identities of the variables that new ranks get.
    pub(crate) lasting: OnceLock<HashSet<usize>>,
    /// Whether a join is under way in which ranks may run out of inputs before others do.
    pub(crate) in_join: AtomicU8,
    /// Finds the rank at fault when an exchange fails.
    pub(crate) post_mortem: Arc<PostMortem>,
    pub(crate) unfinished: Arc<Unfinished>,
}

impl ProcessGroup {
    pub(crate) fn new(
        place: Place,
        engine: c10d_sys::ProcessGroup,
        store: Store,
        post_mortem: PostMortem,
    ) -> ProcessGroup {
        let post_mortem = Arc::new(post_mortem);
        let unfinished = Arc::new(Unfinished::default());
        let watched = || (engine.clone(), Arc::clone(store.engine()), Arc::clone(&post_mortem));
        let watch = match (place.world_size, place.backend) {
            (1, _) => None,
            (_, Backend::Gloo) => watch::start(watched()),
            (_, Backend::Nccl) => nccl_watch::start(watched(), Arc::clone(&unfinished)),
        };
        record::remember_group(&unfinished, &post_mortem, &store.first);
        let inner = Arc::new(Inner {
            place,
            engine,
            watch,
            store,
            agreements: AtomicUsize::new(0),
            groups: Mutex::default(),
            bucket_order: OnceLock::new(),
            lasting: OnceLock::new(),
            in_join: AtomicU8::new(0),
            post_mortem,
            unfinished,
        });
        ProcessGroup { inner, timeout: None, tag: 0, is_on_host: false, is_async: true }
    }

    /// The number of this process in the group, from 0. `dist.get_rank()`.
    #[doc(alias = "get_rank")]
    pub fn rank(&self) -> usize {
        self.inner.place.rank
    }

    pub(crate) fn job_rank(&self) -> usize {
        self.inner.place.job_rank
    }

    /// The number of processes in the group. `dist.get_world_size()`.
    #[doc(alias = "get_world_size")]
    pub fn world_size(&self) -> usize {
        self.inner.place.world_size
    }

    /// The number of this process on its host, from 0. Differs from [`rank`](Self::rank) if there are several hosts.
    pub fn local_rank(&self) -> usize {
        self.inner.place.local_rank
    }

    /// The number of processes on this host: LOCAL_WORLD_SIZE. Divide batch sizes and loader threads per host by it.
    pub fn local_world_size(&self) -> usize {
        self.inner.place.local_world_size
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

    /// How tensors travel between the ranks of this group.
    ///
    /// If all ranks of a group with the backend gloo are processes on one host, collectives of dense tensors on the CPU
    /// go through shared memory, which is several times as fast as sockets. So do the gradients
    /// of [`DistributedDataParallel`](crate::distributed::DistributedDataParallel). The results equal gloo's to the
    /// last bit. If one of the ranks is on another host or in another container, or runs Python, all use sockets. Set
    /// `TCH_PARALLEL_SHARED_MEMORY=0`, on one rank or on all, to switch shared memory off.
    ///
    /// ```
    /// use tch_parallel::distributed::{ProcessGroup, Transport};
    ///
    /// let group = ProcessGroup::from_env()?;
    /// if let Transport::Sockets { reason } = group.transport() {
    ///     println!("no shared memory: {reason}");
    /// }
    /// # Ok::<(), tch_parallel::Error>(())
    /// ```
    pub fn transport(&self) -> Transport {
        Transport::of(self.backend(), self.engine())
    }

    /// A tensor for collectives of this group, on its [`exchange_device`](Self::exchange_device) with undefined values.
    /// With [`Transport::SharedMemory`] it lies in shared memory, so that `all_reduce` and `reduce` copy nothing, and
    /// the other collectives read inputs where they lie. `Backend.allocate_tensor`.
    ///
    /// The buckets of [`DistributedDataParallel`](crate::distributed::DistributedDataParallel) are allocated there.
    ///
    /// # Errors
    /// [`Error::Tensor`] for a negative size, or if there is not enough memory.
    pub fn allocate_tensor(&self, size: &[i64], kind: Kind) -> Result<Tensor> {
        let allocated = self.engine().allocate_tensor(size, (kind, self.exchange_device()));
        allocated.map_err(Error::engine("allocate_tensor"))
    }

    /// The same group, with another time limit for what is called on this handle: for a call,
    /// `group.with_timeout(limit).all_reduce(…)`, and for a group made of its ranks,
    /// `group.with_timeout(limit).new_group(…)`. `dist.new_group(timeout=…)`.
    ///
    /// A call that takes longer than its limit fails, and the group is then unusable. Those of
    /// [`DistributedDataParallel`] keep to the group's own limit: make one with `with_timeout(limit).new_group(…)`.
    ///
    /// With NCCL, a call on this handle waits until the GPU has finished, as `Work.wait(timeout)` does in PyTorch.
    /// Without a time limit of its own, it returns as soon as later work on the GPU is sure to see the result.
    ///
    /// [`DistributedDataParallel`]: crate::distributed::DistributedDataParallel
    ///
    /// ```
    /// use std::time::Duration;
    /// use tch_parallel::distributed::ProcessGroup;
    ///
    /// let group = ProcessGroup::from_env()?;
    /// group.with_timeout(Duration::from_secs(10)).barrier()?;
    /// # Ok::<(), tch_parallel::Error>(())
    /// ```
    #[must_use]
    pub fn with_timeout(&self, timeout: Duration) -> ProcessGroup {
        ProcessGroup { timeout: Some(timeout.min(LONGEST_TIMEOUT)), ..self.clone() }
    }

    /// The same group, with a tag for the messages that are sent and received on this handle. A message is received
    /// only with the tag with which it was sent; by default, 0. `dist.send(tag=…)`.
    ///
    /// NCCL ignores tags, in Python too.
    #[must_use]
    pub fn with_tag(&self, tag: i32) -> ProcessGroup {
        ProcessGroup { tag, ..self.clone() }
    }

    /// What it takes to fail this group from another thread, without keeping it.
    pub(crate) fn standing(&self) -> Standing {
        let unfinished = Arc::clone(&self.inner.unfinished);
        Standing { engine: self.engine().clone(), backend: self.backend(), unfinished }
    }

    /// How long this handle's calls wait for the other ranks.
    pub(crate) fn timeout(&self) -> Duration {
        self.timeout.unwrap_or(self.inner.place.timeout)
    }

    /// The same group, for operations that this thread waits for at once.
    pub(crate) fn at_once(&self) -> ProcessGroup {
        ProcessGroup { is_async: false, ..self.clone() }
    }

    /// How the engine is to run an operation.
    pub(crate) fn call(&self) -> Call {
        Call { timeout: self.timeout, is_async: self.is_async }
    }

    pub(crate) fn engine(&self) -> &c10d_sys::ProcessGroup {
        &self.inner.engine
    }
}

/// A group that another thread may end.
#[derive(Debug)]
pub(crate) struct Standing {
    engine: c10d_sys::ProcessGroup,
    backend: Backend,
    unfinished: Arc<Unfinished>,
}

impl Standing {
    /// Makes all exchanges fail, here and on the other ranks.
    pub(crate) fn fail(&self) {
        self.unfinished.cancel();
        // It can only fail if memory is short; what is in progress then waits as long as the backend does.
        let _ = match self.backend {
            Backend::Gloo => self.engine.fail(),
            Backend::Nccl => self.engine.abort(),
        };
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        drop(self.watch.take());
        destroy(&self.engine, self.place, self.store.engine(), &self.unfinished);
    }
}

impl From<&ProcessGroup> for Shard {
    fn from(group: &ProcessGroup) -> Shard {
        Shard::new(group.rank(), group.world_size())
            .unwrap_or_else(|_| unreachable!("a rank is less than its group's size"))
    }
}

debug_parts!(
    Inner, self,
    place: self.place,
    transport: Transport::of(self.place.backend, &self.engine)
);
