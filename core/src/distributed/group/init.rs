//! How a process becomes a rank: `init_process_group`.

use super::device::{self, Backend, DeviceChoice};
use super::{env::Env, gpus::Gpus, open_files, place::Place, process_group::ProcessGroup};
use super::{store::Store, transport::shared_memory_is_allowed};
use crate::distributed::fault::first_fault::{self, Fault};
use crate::distributed::fault::members::{self, Member};
use crate::distributed::fault::{blame::may_be_anothers_fault, post_mortem::PostMortem, vote};
use crate::{Error, Result, check};
use c10d_sys::{GlooAddress, GlooOptions, LONGEST_TIMEOUT};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};
#[cfg(feature = "cuda")]
use tch::Device;

/// How often a process that joins an elastic job asks whether its place is over.
const INTERVAL: Duration = Duration::from_millis(5);

/// PyTorch's keyword arguments `backend`, `device_id` and `timeout` of [`init_process_group`].
#[derive(Debug, Clone, Copy, Default)]
pub struct ProcessGroupOptions {
    /// What moves the tensors; by default NCCL for CUDA and gloo for the CPU, as in PyTorch.
    pub backend: Option<Backend>,
    /// The device of this rank's tensors.
    pub device: DeviceChoice,
    /// How long to wait for the other ranks, at the start and in collectives; by default [`Backend::default_timeout`].
    pub timeout: Option<Duration>,
}

/// Joins the other ranks of the job that the environment describes ([`Env`]).
///
/// PyTorch's counterpart is `torch.distributed.init_process_group`; Rust and Python ranks can join the same group.
/// Python cannot answer [`all_gather_object`](ProcessGroup::all_gather_object),
/// [`gather_object`](ProcessGroup::gather_object), [`broadcast_object`](ProcessGroup::broadcast_object),
/// [`scatter_object`](ProcessGroup::scatter_object), [`new_group`](ProcessGroup::new_group) with its ranks,
/// [`Training::save`], [`Training::load`], and the gathering of a
/// [`ZeroRedundancyOptimizer`](crate::optim::ZeroRedundancyOptimizer)'s state; with a Python rank they return
/// [`Error::Argument`] at once. Without a launcher, the world is this process alone, and every collective is the
/// identity.
///
/// [`Training::save`]: crate::checkpoint::Training::save
/// [`Training::load`]: crate::checkpoint::Training::load
///
/// libtorch then prints no warnings in this process, such as of attempts to connect. Set `TORCH_CPP_LOG_LEVEL=WARNING`
/// to see them.
///
/// ```
/// use std::time::Duration;
/// use tch_parallel::distributed::{DeviceChoice, ProcessGroupOptions, init_process_group};
///
/// let group = init_process_group(ProcessGroupOptions {
///     device: DeviceChoice::Cpu,
///     timeout: Some(Duration::from_secs(60)),
///     ..Default::default()
/// })?;
/// assert_eq!((group.rank(), group.world_size()), (0, 1)); // no launcher has started this process
/// # Ok::<(), tch_parallel::Error>(())
/// ```
///
/// # Errors
/// - [`Error::Environment`]: the environment is incomplete or invalid.
/// - [`Error::Argument`]: the device or the backend is not available here, or this process may not
///   open as many files as the job needs.
/// - [`Error::Rendezvous`]: the port is taken, the host MASTER_ADDR did not resolve for a minute,
///   or for the timeout if that is shorter, or a rank did not arrive within the timeout.
pub fn init_process_group(options: ProcessGroupOptions) -> Result<ProcessGroup> {
    join(Env::read()?, options, None)
}

/// Takes this place in a job. Waits for the others for the timeout, or for `join_timeout` if that is longer.
fn join(
    env: Option<Env>,
    options: ProcessGroupOptions,
    join_timeout: Option<Duration>,
) -> Result<ProcessGroup> {
    let (rank, world_size) = env.as_ref().map_or((0, 1), |env| (env.rank, env.world_size));
    // An unavailable device is refused before any rank is contacted.
    let place = place(env.as_ref(), rank, world_size, options, join_timeout)?;
    meet(&Store::of(env, place.join_timeout)?, place, None)
}

impl ProcessGroup {
    /// [`init_process_group`] with its defaults.
    pub fn from_env() -> Result<ProcessGroup> {
        init_process_group(ProcessGroupOptions::default())
    }

    /// Makes this process rank `rank` of the `world_size` that call this with the same store.
    ///
    /// A group of [`init_process_group`] contains all processes of the job. This one contains only the processes that
    /// call it: it waits for nobody else, and if one of its members dies, other groups go on. A process can be in
    /// several groups, each with its own prefix ([`Store::with_prefix`]), under which nothing else may be stored.
    /// LOCAL_RANK, if it is set, selects the GPU. PyTorch's counterpart is `init_process_group(store=…, rank=…,
    /// world_size=…)`.
    ///
    /// # Errors
    /// - [`Error::Argument`]: the rank is too large, the device or the backend is not available, or this
    ///   process may not open as many files as the group needs.
    /// - [`Error::Rendezvous`]: a member did not arrive within the timeout.
    pub fn with_store(
        store: &Store,
        rank: usize,
        world_size: usize,
        options: ProcessGroupOptions,
    ) -> Result<ProcessGroup> {
        expect_member(rank, world_size)?;
        meet(store, place(store.env(), rank, world_size, options, None)?, None)
    }

    /// Joins the `world_size` ranks that call this with the same address, as rank `rank`.
    /// `init_process_group(init_method=…, rank=…, world_size=…)`.
    ///
    /// The address is `tcp://HOST:PORT`, where rank 0 serves the store; `file:///PATH`, a file that all ranks see
    /// and no earlier job has used ([`Store::file`]); or `env://`, which reads MASTER_ADDR and MASTER_PORT.
    /// LOCAL_RANK, if it is set, selects the GPU. If ranks that meet in a file run on several hosts, set
    /// GLOO_SOCKET_IFNAME to the network interface between them.
    ///
    /// ```
    /// use tch_parallel::distributed::{ProcessGroup, ProcessGroupOptions};
    ///
    /// let file = std::env::temp_dir().join(format!("rendezvous-{}", std::process::id()));
    /// let init_method = format!("file://{}", file.display());
    /// let group =
    ///     ProcessGroup::with_init_method(&init_method, 0, 1, ProcessGroupOptions::default())?;
    /// group.barrier()?;
    /// # Ok::<(), tch_parallel::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`init_process_group`] and [`with_store`](Self::with_store); [`Error::Argument`] for any other address.
    pub fn with_init_method(
        init_method: &str,
        rank: usize,
        world_size: usize,
        options: ProcessGroupOptions,
    ) -> Result<ProcessGroup> {
        expect_member(rank, world_size)?;
        let (scheme, address) = init_method.split_once("://").unwrap_or_default();
        let host_and_port = address.rsplit_once(':').and_then(|(host, port)| {
            Some((host.trim_matches(['[', ']']), port.parse().ok().filter(|port| *port > 0)?))
        });
        let master = match (scheme, host_and_port) {
            ("tcp", Some(_)) => host_and_port,
            ("env", _) if address.is_empty() => None,
            ("file", _) if address.starts_with('/') => {
                let store = Store::file(address, Some(world_size))?;
                return Self::with_store(&store, rank, world_size, options);
            }
            _ => {
                let expected = "tcp://HOST:PORT, file:///PATH or env://";
                return Err(Error::argument("init_method", format!("{init_method:?}"), expected));
            }
        };
        join(Some(Env::given(rank, world_size, master)?), options, None)
    }

    /// The group of a job whose ranks come and go. `None` once the place `is_over`: another member may be gone.
    pub(crate) fn in_an_elastic_job(
        env: Env,
        options: ProcessGroupOptions,
        join_timeout: Option<Duration>,
        is_over: impl Fn() -> bool,
    ) -> Result<Option<ProcessGroup>> {
        let (sender, joined) = mpsc::channel();
        // The receiver is gone if the place was over before.
        let join = move || drop(sender.send(join(Some(env), options, join_timeout)));
        let failed = Error::io("start a thread to join", "the group");
        thread::Builder::new().name("join".into()).spawn(join).map_err(failed)?;
        loop {
            if let Ok(group) = joined.recv_timeout(INTERVAL) {
                let group = group?;
                // Every thread has a current device of its own.
                device::make_current(group.device())?;
                return Ok(Some(group));
            }
            if is_over() {
                return Ok(None);
            }
        }
    }
}

fn expect_member(rank: usize, world_size: usize) -> Result<()> {
    check(rank < world_size, "rank", rank, format_args!("below world_size, which is {world_size}"))
}

/// This process's place as rank `rank` of `world_size`.
fn place(
    env: Option<&Env>,
    rank: usize,
    world_size: usize,
    options: ProcessGroupOptions,
    join_timeout: Option<Duration>,
) -> Result<Place> {
    let (job_rank, local_rank, local_world_size) =
        env.map_or((rank, rank, world_size), |e| (e.rank, e.local_rank, e.local_world_size));
    // Outside a job, LOCAL_RANK selects the GPU; in Python, programs do that themselves.
    let own = std::env::var("LOCAL_RANK").ok().filter(|_| env.is_none());
    let gpu = own.and_then(|own| own.parse().ok()).unwrap_or(local_rank);
    let (device, backend) = device::choose(Gpus::visible(), options.device, options.backend, gpu)?;
    device::make_current(device)?;
    let timeout = options.timeout.unwrap_or(backend.default_timeout()).min(LONGEST_TIMEOUT);
    let join_timeout = join_timeout.map_or(timeout, |least| least.max(timeout));
    Ok(Place {
        rank,
        world_size,
        job_rank,
        local_rank,
        local_world_size,
        device,
        backend,
        timeout,
        join_timeout,
    })
}

/// Takes this place in the group that meets in `store`, which may be one of some ranks of the job.
pub(crate) fn meet(store: &Store, place: Place, some: Option<&[usize]>) -> Result<ProcessGroup> {
    let Place { rank, world_size, job_rank, join_timeout: timeout, .. } = place;
    open_files::expect_enough(world_size)?;
    let shared_memory = shared_memory_is_allowed()?;
    let could_not_join = |message: &str| {
        let of = some.map(|ranks| format!(" of ranks {ranks:?}")).unwrap_or_default();
        let (operation, message) = (format!("join the group{of}"), message.into());
        let rank = some.map_or(rank, |_| job_rank);
        Error::Rendezvous { rank, world_size, operation, message }
    };
    let failed = |error: c10d_sys::Error| could_not_join(error.message());
    // A connection of its own: the rank at fault must be found while others wait in the store.
    let ours = store.try_clone()?.with_prefix("tch_parallel")?;
    if vote::enrol(ours.engine()).map_err(failed)? > world_size {
        return Err(could_not_join(
            "more ranks have joined than the group has; a second group in the same store needs a \
             prefix of its own: `Store::with_prefix`",
        ));
    }
    Member::new(rank, job_rank).sign(ours.engine()).map_err(failed)?;
    let start = Instant::now();
    let engine = connect(store.engine(), store.gloo_address()?, shared_memory, &place);
    let engine = engine.map_err(|error| {
        if may_be_anothers_fault(&error) {
            first_fault::remember(|| Fault::Another(None));
        }
        let is_over = start.elapsed() >= timeout;
        let names = some.map_or_else(|| (0..world_size).collect(), <[usize]>::to_vec);
        let absent = is_over.then(|| members::absent(ours.engine(), &names, timeout)).flatten();
        could_not_join(absent.as_deref().unwrap_or(error.message()))
    })?;
    // Each rank has signed before it connected.
    let members = members::read(ours.engine(), timeout).map_err(failed)?;
    let agent_store = store.env().is_none_or(|env| env.agent_store);
    let mut post_mortem =
        PostMortem::new(Arc::clone(ours.engine()), rank, world_size, members, agent_store);
    post_mortem.search.serves_store |= store.is_master();
    post_mortem.is_elastic = store.env().is_some_and(|env| env.is_elastic);
    Ok(ProcessGroup::new(place, engine, ours, post_mortem))
}

/// Connects to all others under the keys of Python's default group, so that ranks of either language find each other.
fn connect(
    store: &c10d_sys::Store,
    address: GlooAddress,
    shared_memory: bool,
    place: &Place,
) -> Result<c10d_sys::ProcessGroup, c10d_sys::Error> {
    let store = store.with_prefix("default_pg")?.with_prefix("0/")?;
    let Place { rank, world_size, job_rank: name, timeout, join_timeout, .. } = *place;
    match (place.backend, place.device) {
        #[cfg(feature = "cuda")]
        (Backend::Nccl, Device::Cuda(index)) => {
            c10d_sys::ProcessGroup::nccl(&store, rank, world_size, index, timeout)
        }
        _ => {
            let options = GlooOptions { address, shared_memory, name, timeout, join_timeout };
            c10d_sys::ProcessGroup::gloo(&store, rank, world_size, &options)
        }
    }
}
