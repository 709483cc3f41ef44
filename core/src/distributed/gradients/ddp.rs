//! Averages gradients over the ranks while the backward pass runs.

use super::buffer_comm_hook::{BufferCommHook, BufferCommHookLocation};
use super::hooks::register::{self, Failure};
use super::module_tensors::{ModuleTensors, Wrapped, expect_lasting, expect_unchanged};
use super::virtual_ranks::{self, VirtualRanks};
use super::{bucket_order, same_model};
use super::{ddp_options::DdpOptions, mixed_precision::CastParameters};
use crate::distributed::join::{JoinConfig, announce};
use crate::distributed::{collectives::Pending, fsdp::mixed_precision::cast, group::ProcessGroup};
use crate::{Error, Result, Tensors, check, profiler::record_function};
use c10d_sys::{DelayedAllReduce, ErrorKind, ReduceOp, Reducer, autograd, tensor};
use std::cell::{Cell, RefCell};
use std::{any::type_name, sync::Arc};
use tch::Tensor;
use tch::nn::{ModuleT, VarStore};
use tch_parallel_base::tensors::{fill, list};
use tch_parallel_base::{lock, parameters::named_buffers};

/// `broadcast_bucket_size` in distributed.py.
pub(super) const BROADCAST_BUFFER_BYTES: usize = 250 << 20;

/// `torch.nn.parallel.DistributedDataParallel`, driven by the same C++ `Reducer`.
///
/// Construction copies rank 0's parameters to every rank, and its buffers unless the options disable that. After each
/// forward pass through this wrapper, the backward pass averages the gradients over the ranks, in buckets, while others
/// are still being computed. Parameters are never sent again: they stay equal because every rank makes the same step.
///
/// A module with one input and one output works with tch's [`ModuleT`], any other with
/// [`forward`](Self::forward). Evaluate with [`module`](Self::module), which exchanges nothing.
///
/// In a job with ranks that run Python, a module that has buffers must also have parameters, as a batch norm does: tch
/// does not keep the order of buffers, so they are sent in the order of their modules' parameters.
///
/// The gradients are those of the mean of the ranks' losses. Scale a loss that sums over the batch
/// by the world size to get the gradients of a single process.
///
/// ```
/// use tch::nn::{self, ModuleT};
/// use tch::{Kind, Tensor};
/// use tch_parallel::distributed::{DdpOptions, DistributedDataParallel, ProcessGroup};
/// use tch_parallel::optim::{Optimizer, Sgd, SgdOptions};
///
/// let group = ProcessGroup::from_env()?;
/// let vs = nn::VarStore::new(group.device());
/// let module = nn::linear(vs.root() / "fc", 4, 3, Default::default());
/// let model = DistributedDataParallel::new(module, &vs, &group)?;
/// let mut optimizer = Sgd::new(&vs, SgdOptions { lr: 0.1, ..Default::default() })?;
///
/// // This rank's batch.
/// let images = Tensor::ones([8, 4], (Kind::Float, group.device()));
/// let labels = Tensor::zeros([8], (Kind::Int64, group.device()));
/// let mut losses = Vec::new();
/// for _step in 0..2 {
///     let loss = model.forward_t(&images, true).cross_entropy_for_logits(&labels);
///     optimizer.zero_grad()?;
///     model.backward(&loss)?;
///     optimizer.step()?;
///     losses.push(loss.double_value(&[]));
/// }
/// assert!(losses[1] < losses[0]);
/// # Ok::<(), tch_parallel::Error>(())
/// ```
#[doc(alias = "DDP")]
pub struct DistributedDataParallel<M> {
    pub(crate) reducer: RefCell<Reducer>,
    module: M,
    pub(crate) group: ProcessGroup,
    /// The parameters that the reducer knows, by their numbers there.
    names: Vec<String>,
    /// All parameters, in the order of registration.
    parameters: Vec<(String, Tensor)>,
    pub(super) wrapped: Wrapped,
    /// What `sync_buffers` sends; empty if the options disable it.
    pub(super) buffers: Vec<(String, Tensor)>,
    pub(super) forward_sync_buffers: bool,
    pub(super) buffer_comm_hook: Option<RefCell<BufferCommHook>>,
    /// What that hook has started.
    pub(super) pending_buffers: RefCell<Vec<Pending<Tensor>>>,
    /// Parameters, including frozen ones, and the buffers that are sent before each forward pass.
    pub(super) state: Vec<Tensor>,
    pub(crate) static_graph: bool,
    /// Whether the gradients of the last forward pass are to be exchanged.
    is_synced: Cell<bool>,
    /// How many guards suspend the exchange of gradients; at 0, `require_backward_grad_sync` in distributed.py is true.
    pub(crate) no_sync_guards: Cell<usize>,
    /// Whether rank 0's buffers may have changed; `require_forward_param_sync`.
    pub(crate) sync_buffers: Cell<bool>,
    /// Where the communication hook's failures are kept, if there is a hook.
    pub(crate) hook_failure: Option<Failure>,
    /// With `delay_all_reduce_named_params`.
    pub(super) delayed: Option<DelayedAllReduce>,
    /// With `mixed_precision`.
    cast_parameters: Option<Arc<CastParameters>>,
    pub(super) virtual_ranks: Option<Arc<VirtualRanks>>,
    pub(super) has_sparse_gradients: bool,
    pub(super) skips_unused_buckets: bool,
    pub(crate) join_config: JoinConfig,
}

impl<M> DistributedDataParallel<M> {
    /// Wraps `module`, whose parameters are the trainable variables of `vs`. A collective.
    ///
    /// # Errors
    /// - [`Error::Argument`]: nothing in `vs` is trainable, or it is not all on one kind of device, or within
    ///   [`elastic::run`](crate::elastic::run) it is not the store of the state, or an
    ///   [`OptimizerInBackward`](crate::optim::OptimizerInBackward) steps a parameter.
    /// - [`Error::Collective`]: a rank has another model or other options, got an [`Error::Argument`], or could not be
    ///   reached. All ranks get the error; PyTorch compares only shapes and informs only ranks unlike rank 0.
    pub fn new(module: M, vs: &VarStore, group: &ProcessGroup) -> Result<Self> {
        Self::with_options(module, vs, group, DdpOptions::default())
    }

    /// The same with PyTorch's keyword arguments. Without `init_sync`, this is not a collective, and only this rank gets
    /// its errors.
    ///
    /// # Errors
    /// Those of [`new`](Self::new), and [`Error::Argument`] for a bucket size not above 0 or a name not in `vs`.
    pub fn with_options(
        module: M,
        vs: &VarStore,
        group: &ProcessGroup,
        options: DdpOptions,
    ) -> Result<Self> {
        let operation = "DistributedDataParallel::new";
        if options.virtual_ranks.is_some() {
            virtual_ranks::set_num_threads();
        }
        let own = expect_lasting(vs, group)
            .and_then(|()| ModuleTensors::new(vs, &options))
            .and_then(|tensors| Ok((tensors, options.for_the_reducer()?)));
        let description = own.as_ref().map(|it| same_model::description(&it.0, &options));
        let agreed = options.init_sync.then(|| same_model::check(group, operation, description));
        let (tensors, reducer_options) = own?;
        agreed.transpose()?;
        let (names, trained): (Vec<_>, Vec<_>) = tensors.trained().unzip();
        let mut state = tensors.shared();
        if options.init_sync {
            // Ranks that run Python expect this check as well.
            let verified = group.engine().verify_params(&trained);
            verified.map_err(|error| group.failed(operation, &error))?;
            group.broadcast_coalesced(operation, &state, BROADCAST_BUFFER_BYTES, 0)?;
        }
        if !options.forward_sync_buffers {
            state.truncate(state.len() - tensors.buffers.len());
        }
        let sparse: Vec<_> = names.iter().map(|it| options.sparse_gradients.contains(it)).collect();
        let (engine, name, bytes) = (group.engine(), type_name::<M>(), options.bucket_bytes());
        let reducer =
            Reducer::new(engine, &trained, &names, &sparse, name, &bytes, reducer_options);
        let mut reducer = reducer.map_err(|error| group.failed(operation, &error))?;
        if let Some(order) = group.inner.bucket_order.get() {
            bucket_order::load_state_dict(vs, order)?;
        }
        let cast_parameters = options.mixed_precision.map(|precision| {
            let own = named_buffers(vs).into_iter();
            let buffers = own.filter(|it| !options.params_and_buffers_to_ignore.contains(&it.0));
            let shared = tensors.shared_parameters().map(|(_, tensor)| tensor.shallow_clone());
            CastParameters::new(shared.collect(), buffers, precision, &mut reducer)
        });
        let cast_parameters = cast_parameters.transpose()?;
        let wrapped = tensors.wrapped();
        let virtual_ranks = |count| VirtualRanks::new(count, group, trained, tensors.buffers());
        let virtual_ranks = options.virtual_ranks.map(virtual_ranks).transpose()?;
        let (hook, kind) = match (&cast_parameters, &virtual_ranks) {
            (Some(parameters), _) => (Some(parameters.hook()), parameters.options.reduce_dtype),
            (None, Some(ranks)) => (Some(ranks.hook()), None),
            (None, None) => (options.comm_hook, None),
        };
        let registered = hook.map(|hook| register::register(hook, kind, &mut reducer, group));
        let delayed = tensors.delayed.map(|(delayed, hooked)| {
            let own = group.clone();
            let sum = move |flat: &Tensor| own.engine().all_reduce(flat, ReduceOp::Sum, own.call());
            DelayedAllReduce::new(delayed, hooked, group.world_size(), sum)
        });
        let delayed = delayed.transpose().map_err(|error| group.failed(operation, &error))?;
        Ok(DistributedDataParallel {
            reducer: RefCell::new(reducer),
            module,
            group: group.clone(),
            names,
            parameters: tensors.parameters,
            wrapped,
            buffers: tensors.buffers,
            forward_sync_buffers: options.forward_sync_buffers,
            buffer_comm_hook: options.buffer_comm_hook.map(RefCell::new),
            pending_buffers: RefCell::default(),
            state,
            static_graph: options.static_graph,
            is_synced: Cell::new(false),
            no_sync_guards: Cell::new(0),
            sync_buffers: Cell::new(true),
            hook_failure: registered.transpose()?,
            delayed,
            cast_parameters,
            virtual_ranks,
            has_sparse_gradients: sparse.contains(&true),
            skips_unused_buckets: options.skip_all_reduce_unused_params,
            join_config: JoinConfig::default(),
        })
    }

    /// Calls `f` with the module and prepares the exchange of its gradients.
    ///
    /// ```
    /// # use tch::{Kind, Tensor, nn::{self, Module}};
    /// # use tch_parallel::distributed::{DdpOptions, DistributedDataParallel, ProcessGroup};
    /// # let group = ProcessGroup::from_env()?;
    /// # let vs = nn::VarStore::new(group.device());
    /// # let tower = nn::linear(vs.root(), 4, 3, Default::default());
    /// # let model = DistributedDataParallel::new(tower, &vs, &group)?;
    /// # let [a, b] = [2, 5].map(|rows| Tensor::ones([rows, 4], (Kind::Float, group.device())));
    /// let (left, right) = model.forward(|tower| (tower.forward(&a), tower.forward(&b)))?;
    /// assert_eq!((left.size(), right.size()), (vec![2, 3], vec![5, 3]));
    /// # Ok::<(), tch_parallel::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::UnusedParameters`] if parameters did not contribute to the last loss, [`Error::Collective`] if buffers
    /// could not be broadcast, [`Error::Argument`] for [`no_sync`](Self::no_sync) in a static graph's first iteration,
    /// for parameters unfrozen, converted, moved or laid out anew since wrapping, and static outputs without a graph.
    pub fn forward<O: Tensors>(&self, f: impl FnOnce(&M) -> O) -> Result<O> {
        // As in PyTorch's traces.
        record_function("DistributedDataParallel.forward", || self.traced_forward(f))?
    }

    fn traced_forward<O: Tensors>(&self, f: impl FnOnce(&M) -> O) -> Result<O> {
        // Left over if `backward` of this model has not waited for them; `f` may read them.
        self.finish_buffers()?;
        let grad = tensor::grad_enabled();
        if grad {
            expect_unchanged(&self.wrapped)?;
        }
        let mut sync = grad && self.no_sync_guards.get() == 0;
        if let (true, Some(ranks)) = (grad, &self.virtual_ranks) {
            let join = self.join_config.options().map(|_| "a join");
            let other = (!sync).then_some("no_sync").or(join);
            let (name, found) = (other.unwrap_or_default(), "used with virtual_ranks");
            check(other.is_none(), name, found, "used without them")?;
            sync = ranks.is_last_share()?;
        }
        let learns = grad && self.static_graph && self.reducer.borrow().needs_sink();
        let found = "in the first iteration of a static graph";
        let expected =
            "used after it: the first backward pass learns the graph and must exchange gradients";
        check(sync || !learns, "no_sync", found, expected)?;
        let failed = |error| self.failed("forward", &error);
        if sync {
            self.reducer.borrow_mut().prepare_for_forward().map_err(failed)?;
        }
        let joining = self.join_config.options();
        if joining.is_some() {
            self.refuse_in_join()?;
        }
        let counting = self.join_config.notify("DistributedDataParallel", &self.group)?;
        let divide = joining.is_none_or(|options| options.divide_by_initial_world_size);
        self.reducer.borrow_mut().set_forward_pass_work(counting, divide).map_err(failed)?;
        // Ranks without inputs cannot know whether this pass has gradients.
        if grad || joining.is_some() {
            let rebuilt = self.reducer.borrow_mut().rebuild_buckets().map_err(failed)?;
            self.lay_out(rebuilt)?;
        }
        let in_join = joining.is_some().then_some(true);
        self.sync_buffers_at(BufferCommHookLocation::PreForward, in_join)?;
        if joining.is_some() {
            self.reducer.borrow_mut().set_uneven_input_join().map_err(failed)?;
            drop(announce(&self.group, sync)?);
        }

        let outputs = match &self.cast_parameters {
            Some(parameters) => parameters.in_forward(grad, || f(&self.module)),
            None => Ok(f(&self.module)),
        };
        let outputs = self.group.or_report(outputs)?;

        self.sync_buffers_at(BufferCommHookLocation::PostForward, None)?;
        self.sync_buffers.set(sync && self.virtual_ranks.is_none());
        if !grad {
            return self.finish_buffers().map(|()| outputs);
        }
        self.delayed.iter().for_each(|delayed| delayed.prepare(sync));
        let mut reducer = self.reducer.borrow_mut();
        let mut tensors = list(&outputs);
        if sync {
            reducer.prepare_for_backward(&tensors).map_err(failed)?;
        }
        self.is_synced.set(sync);
        if reducer.needs_sink() {
            let has_graph = tensors.iter().any(|it| it.requires_grad() && !it.is_leaf());
            let (found, expected) = ("without a graph", "what a static graph can be learned from");
            let learns = check(has_graph || !self.static_graph, "the output of f", found, expected);
            self.group.or_report(learns)?;
            reducer.sink(&mut tensors).map_err(failed)?;
            return Ok(fill(&outputs, tensors));
        }
        Ok(outputs)
    }

    /// `loss.backward()`: afterwards every parameter's gradient is averaged over the ranks.
    ///
    /// A call after the exchange, which would add this rank's gradients alone, is refused. A plain `loss.backward()`
    /// exchanges gradients too, except with `virtual_ranks`, but panics on errors and does not name the rank at fault.
    ///
    /// # Errors
    /// [`Error::Collective`] if a rank has died or did not arrive within the timeout, or if a communication hook
    /// failed; [`Error::Tensor`] if only this rank's pass failed: `loss` has no graph, say, or memory ran out;
    /// [`Error::Argument`] if the gradients of the last forward pass have been exchanged.
    pub fn backward(&self, loss: &Tensor) -> Result<()> {
        let expects = self.reducer.borrow().expects_gradients();
        let expects = expects.map_err(|error| self.group.failed_backward(error))?;
        let is_due = expects || !self.is_synced.get() || self.group.has_failed();
        let expected = "called before that: add the losses, or call it after each forward pass";
        check(is_due, "backward", "called after the exchange of all gradients", expected)?;
        if let Some(ranks) = &self.virtual_ranks {
            if !ranks.is_last_share()? {
                self.expect_no_gradients()?;
                return self.group.or_report(ranks.backward(loss));
            }
            self.group.or_report(ranks.begin_last_backward())?;
        }
        let failed =
            |error| self.take_hook_failure().unwrap_or_else(|| self.group.failed_backward(error));
        let outcome = autograd::backward_from(loss).map_err(failed);
        outcome.and(self.restore_parameters()).and_then(|()| self.finish_buffers())?;
        self.group.wait_for_queued("backward")?;
        if let Some(ranks) = &self.virtual_ranks {
            ranks.end_step()?;
            return self.sync_buffers();
        }
        Ok(())
    }

    /// The parameters' own data and kinds, after a pass with `mixed_precision`.
    pub(crate) fn restore_parameters(&self) -> Result<()> {
        self.cast_parameters.as_ref().map_or(Ok(()), |parameters| parameters.restore())
    }

    /// The module itself, without any exchange. `model.module`
    pub fn module(&self) -> &M {
        &self.module
    }

    /// All parameters, including frozen ones, in the order of registration: what gradient clipping
    /// takes. An optimizer has another order as soon as it has groups. `model.parameters()`
    pub fn parameters(&self) -> Vec<Tensor> {
        self.parameters.iter().map(|(_, parameter)| parameter.shallow_clone()).collect()
    }

    /// The same with their names in the store. `model.module.named_parameters()`
    pub fn named_parameters(&self) -> Vec<(String, Tensor)> {
        let named = |(name, tensor): &(String, Tensor)| (name.clone(), tensor.shallow_clone());
        self.parameters.iter().map(named).collect()
    }

    /// The failure of a hook, if that is why the engine failed.
    fn take_hook_failure(&self) -> Option<Error> {
        lock(self.hook_failure.as_ref()?).take()
    }

    pub(crate) fn failed(&self, operation: &'static str, error: &c10d_sys::Error) -> Error {
        if let Some(error) = self.take_hook_failure() {
            return error;
        }
        if error.kind() == ErrorKind::Unfinished {
            let names = error.missing().iter().filter_map(|index| self.names.get(*index).cloned());
            let rank = self.group.job_rank();
            let error = Error::UnusedParameters { rank, names: names.collect() };
            self.group.report(&error.to_string());
            return error;
        }
        self.group.failed(operation, error)
    }
}

impl<M: ModuleT> DistributedDataParallel<M> {
    /// [`ModuleT::forward_t`] that returns errors; the name follows tch's fallible functions.
    pub fn f_forward_t(&self, xs: &Tensor, train: bool) -> Result<Tensor> {
        let mut xs = xs.shallow_clone();
        cast(&mut xs, self.cast_parameters.as_ref().and_then(|it| it.options.param_dtype))?;
        self.forward(|module| module.forward_t(&xs, train))
    }
}

impl<M: ModuleT> ModuleT for DistributedDataParallel<M> {
    /// # Panics
    /// If [`f_forward_t`](Self::f_forward_t) returns an error.
    fn forward_t(&self, xs: &Tensor, train: bool) -> Tensor {
        self.f_forward_t(xs, train).unwrap_or_else(|error| panic!("{error}"))
    }
}

debug_parts!(
    DistributedDataParallel<M>, self,
    module: type_name::<M>(),
    group: self.group,
    parameters: self.names
);
