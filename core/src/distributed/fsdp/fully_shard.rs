//! Shards a model while it is built: `torch.distributed.fsdp.fully_shard`.

use super::{mesh::Mesh, mixed_precision::MixedPrecisionPolicy, module::FsdpModule};
use super::{parameter::Parameter, reshard_after_forward::ReshardAfterForward, schedule::Schedule};
use super::{shards::shard_of, unit::Unit};
use crate::distributed::group::{DeviceMesh, ProcessGroup};
use crate::{Error, Result};
use c10d_sys::tensor::identity;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::{borrow::Borrow, fmt};
use tch::Tensor;
use tch::nn::{Path, VarStore};
use tch_parallel_base::{lock, tensors::grouped};

/// The keyword arguments of `fully_shard`.
///
/// ```
/// use tch::Kind;
/// use tch_parallel::distributed::{FullyShardOptions, MixedPrecisionPolicy, ReshardAfterForward};
///
/// let param_dtype = Some(Kind::BFloat16);
/// let options = FullyShardOptions {
///     mp_policy: MixedPrecisionPolicy { param_dtype, ..Default::default() },
///     reshard_after_forward: ReshardAfterForward::Ranks(8), // those of a host
///     ..Default::default()
/// };
/// ```
#[derive(Debug, Clone, Default)]
pub struct FullyShardOptions {
    /// What to keep of the whole parameters after the forward pass. The backward pass gathers the rest.
    pub reshard_after_forward: ReshardAfterForward,
    /// The kinds of numbers in which the model computes and its gradients are reduced.
    pub mp_policy: MixedPrecisionPolicy,
    /// The names of parameters that stay whole on each rank. Their gradients are this rank's own.
    pub ignored_params: HashSet<String>,
    /// Whether all ranks begin with rank 0's parameters and buffers, so that each may have a seed of its own. Building
    /// a block is then a collective, in which all ranks must run Rust. FSDP1 has this option; `fully_shard` does not.
    pub sync_module_states: bool,
}

/// `torch.distributed.fsdp.fully_shard` (FSDP2): shards parameters, gradients and optimizer state over a group.
///
/// Each block that is built with [`shard`](Self::shard) is a unit: its parameters are gathered before its forward and
/// backward passes and freed afterwards, and its gradients are reduced to shards during the backward pass. All other
/// parameters belong to the [`root`](Self::root). A block is sharded once built, so no rank ever holds the whole model.
///
/// The layers are tch's own. Once a block is sharded, the variable store holds its shards: an optimizer made from the
/// store trains these, and [`VarStore::save`] would write only this rank's, so use
/// [`checkpoint::save`](crate::checkpoint::save) or [`Training`](crate::checkpoint::Training), for the whole model. Use
/// the same seed on all ranks, so that their shards belong to one model, or
/// [`sync_module_states`](FullyShardOptions::sync_module_states).
///
/// Results equal those of PyTorch's `fully_shard` to the last bit. With more than two ranks they
/// differ from DistributedDataParallel's, which adds gradients in another order.
///
/// ```
/// use tch::nn::{self, ModuleT};
/// use tch::{Kind, Tensor};
/// use tch_parallel::distributed::{FsdpModule, FullyShard, FullyShardOptions, ProcessGroup};
/// use tch_parallel::optim::{Adam, AdamOptions, Optimizer};
///
/// #[derive(Debug)]
/// struct Net {
///     blocks: Vec<FsdpModule<nn::Linear>>,
///     head: nn::Linear,
/// }
///
/// impl nn::ModuleT for Net {
///     fn forward_t(&self, xs: &Tensor, train: bool) -> Tensor {
///         let blocks = self.blocks.iter();
///         let xs = blocks.fold(xs.shallow_clone(), |xs, it| it.forward_t(&xs, train).relu());
///         xs.apply_t(&self.head, train)
///     }
/// }
///
/// let group = ProcessGroup::from_env()?;
/// let vs = nn::VarStore::new(group.device());
/// let sharding = FullyShard::new(&vs, &group, FullyShardOptions::default());
/// let linear = |path: &nn::Path, outputs| nn::linear(path, 8, outputs, Default::default());
/// let model = sharding.root(|root| {
///     let blocks = (0..3).map(|i| sharding.shard(root / "blocks" / i, |path| linear(path, 8)));
///     Net { blocks: blocks.collect(), head: linear(&(root / "head"), 2) }
/// })?;
/// let mut optimizer = Adam::new(&vs, AdamOptions::default())?; // of this rank's shards
///
/// let xs = Tensor::ones([4, 8], (Kind::Float, group.device()));
/// let loss = model.f_forward_t(&xs, true)?.square().mean(Kind::Float);
/// optimizer.zero_grad()?;
/// model.backward(&loss)?;
/// optimizer.step()?;
/// # Ok::<(), tch_parallel::Error>(())
/// ```
#[derive(Clone)]
#[doc(alias = "FSDP")]
pub struct FullyShard<'a> {
    vs: &'a VarStore,
    mesh: Mesh,
    options: FullyShardOptions,
    schedule: Arc<Schedule<Unit>>,
    /// Why a block could not be sharded.
    failure: Arc<Mutex<Option<Error>>>,
}

impl<'a> FullyShard<'a> {
    /// Shards the model of `vs` over the ranks of `group`.
    pub fn new(vs: &'a VarStore, group: &ProcessGroup, options: FullyShardOptions) -> Self {
        Self::over(vs, Mesh::new(group), options)
    }

    /// Shards it along the last dimension of a mesh. With two dimensions this is hybrid sharding (HSDP): the first one
    /// numbers copies of the model. Neighbouring ranks share a copy, which should be those of one host: only the
    /// gradients of a rank's shards go further, to the ranks that have the same ones. `fully_shard(model, mesh=mesh)`
    ///
    /// ```
    /// use tch::{Device, nn::VarStore};
    /// use tch_parallel::distributed::{DeviceMesh, FullyShard, ProcessGroup};
    ///
    /// let group = ProcessGroup::from_env()?;
    /// let hosts = group.world_size() / group.local_world_size();
    /// let dims = [("replicate", hosts), ("shard", group.local_world_size())];
    /// let mesh = DeviceMesh::new(&group, &dims)?;
    /// let vs = VarStore::new(Device::Cpu);
    /// let sharding = FullyShard::with_mesh(&vs, &mesh, Default::default())?;
    /// # drop(sharding);
    /// # Ok::<(), tch_parallel::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Argument`] for a mesh of more than two dimensions.
    pub fn with_mesh(
        vs: &'a VarStore,
        mesh: &DeviceMesh,
        options: FullyShardOptions,
    ) -> Result<Self> {
        Ok(Self::over(vs, Mesh::of(mesh)?, options))
    }

    fn over(vs: &'a VarStore, mesh: Mesh, options: FullyShardOptions) -> Self {
        let (schedule, failure) = Default::default();
        FullyShard { vs, mesh, options, schedule, failure }
    }

    /// The same model with other options, for blocks built with the result: PyTorch's calls each have their own.
    pub fn with(&self, options: FullyShardOptions) -> FullyShard<'a> {
        FullyShard { options, ..self.clone() }
    }

    /// Builds a block below `path` and makes it a unit, with all its parameters that do not belong
    /// to a unit inside it. Like tch's layers this returns no error: [`root`](Self::root) does.
    pub fn shard<'p, M>(
        &self,
        path: impl Borrow<Path<'p>>,
        build: impl FnOnce(&Path<'p>) -> M,
    ) -> FsdpModule<M> {
        let path = path.borrow();
        let (first, place) = (self.vs.trainable_variables().len(), self.schedule.len());
        let module = build(path);
        let name: Vec<_> = path.components().collect();
        self.unit(module, first, name.join("."), place)
    }

    /// Builds the whole model, whose blocks `build` makes with [`shard`](Self::shard). They cannot be used before.
    ///
    /// # Errors
    /// [`Error::Argument`] for a parameter that is a scalar, for a block whose own parameters are of different kinds, and
    /// for a number in `reshard_after_forward` that does not divide the ranks; [`Error::Collective`] if values could not
    /// be sent to all ranks.
    pub fn root<M>(&self, build: impl FnOnce(&Path<'_>) -> M) -> Result<FsdpModule<M>> {
        let mut model = self.unit(build(&self.vs.root()), 0, String::new(), 0);
        if let Some(failure) = lock(&self.failure).take() {
            return Err(failure);
        }
        let (names, ignored) = (self.vs.variables(), &self.options.ignored_params);
        if let Some(name) = ignored.iter().find(|name| !names.contains_key(*name)) {
            let expected = "names of variables in the store";
            return Err(Error::argument("ignored_params", format!("a set with {name}"), expected));
        }
        let variables: BTreeMap<_, _> = self.vs.variables().into_iter().collect();
        let others = variables.into_iter().filter(|(_, it)| shard_of(it).is_none());
        model.others = others.collect();
        model.others.iter().try_for_each(|(_, variable)| self.sync(variable))?;
        self.schedule.complete();
        Ok(model)
    }

    /// Makes a unit of the variables from number `first` on that are not yet shards, at this place among the units.
    fn unit<M>(&self, module: M, first: usize, name: String, place: usize) -> FsdpModule<M> {
        let FullyShard { mesh, options, schedule, .. } = self;
        let is_root = name.is_empty();
        let parameters = self.kept(self.shard_variables(first));
        let inner = |it: &Parameter| {
            let inner = it.name.strip_prefix(&name).unwrap_or(&it.name);
            inner.trim_start_matches('.').to_owned()
        };
        let parameters = parameters.into_iter().map(|it| (inner(&it), it)).collect();
        let parameters = children_before_own(parameters);
        let post_forward = self.kept(options.reshard_after_forward.group(mesh, is_root));
        let policy = options.mp_policy;
        let unit = Unit::new(name, parameters, post_forward, policy.reduce_dtype, mesh, schedule);
        schedule.add(&unit, place);
        FsdpModule { module, unit, others: Vec::new(), policy, group: mesh.shard.clone() }
    }

    /// Keeps an error for `root`.
    fn kept<T: Default>(&self, result: Result<T>) -> T {
        result.unwrap_or_else(|error| {
            lock(&self.failure).get_or_insert(error);
            T::default()
        })
    }

    /// Broadcasts rank 0's values to all ranks, if the options say so.
    fn sync(&self, variable: &Tensor) -> Result<()> {
        if !self.options.sync_module_states || lock(&self.failure).is_some() {
            return Ok(());
        }
        self.mesh.world.refuse_python("sync_module_states", 0..self.mesh.world.world_size())?;
        self.mesh.world.broadcast(&mut variable.detach(), 0)
    }

    /// Replaces these variables in the store with their shards.
    fn shard_variables(&self, first: usize) -> Result<Vec<Parameter>> {
        let mut variables = lock(&self.vs.variables_);
        let names = variables.named_variables.iter();
        let names: HashMap<_, _> = names.map(|(name, it)| (identity(it), name.clone())).collect();
        let mut parameters = Vec::new();
        let (kind, ignored) = (self.options.mp_policy.param_dtype, &self.options.ignored_params);
        for place in first..variables.trainable_variables.len() {
            let whole = variables.trainable_variables[place].tensor.shallow_clone();
            let is_due = |name: &&String| shard_of(&whole).is_none() && !ignored.contains(*name);
            let Some(name) = names.get(&identity(&whole)).filter(is_due) else { continue };
            self.sync(&whole)?;
            let parameter = Parameter::shard(name.clone(), whole, kind, &self.mesh)?;
            let shard = &parameter.shard;
            variables.trainable_variables[place].tensor = shard.shallow_clone();
            variables.named_variables.insert(name.clone(), shard.shallow_clone());
            parameters.push(parameter);
        }
        check_kinds(&parameters).map(|()| parameters)
    }
}

impl fmt::Debug for FullyShard<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FullyShard")
            .field("mesh", &self.mesh)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

/// The parameters of a unit share one buffer.
fn check_kinds(parameters: &[Parameter]) -> Result<()> {
    let Some(first) = parameters.first() else { return Ok(()) };
    let other = parameters.iter().find(|it| it.whole_kind() != first.whole_kind());
    other.map_or(Ok(()), |other| {
        let [one, other] = [first, other].map(|it| format!("{} of {:?}", it.name, it.whole_kind()));
        let expected = "a block whose own parameters are of one kind, or param_dtype for all";
        Err(Error::argument("FullyShard", format!("given {one} and {other}"), expected))
    })
}

/// PyTorch's order (`_get_managed_modules`): the parameters of a module's children come before its own. The order
/// matters: the position in the flat buffer decides in which order the ranks' values are added.
fn children_before_own(parameters: Vec<(String, Parameter)>) -> Vec<Parameter> {
    let (mut own, mut inner) = (Vec::new(), Vec::new());
    for (name, parameter) in parameters {
        match name.split_once('.') {
            Some((child, rest)) => inner.push((child.to_owned(), (rest.to_owned(), parameter))),
            None => own.push((name, parameter)),
        }
    }
    let children = grouped(inner, |(child, _)| child.clone()).into_iter();
    let children = children.map(|child| child.into_iter().map(|(_, it)| it).collect::<Vec<_>>());
    // tch's layers register the bias first, PyTorch's the weight. A custom layer is unlikely to register the bias first.
    if let Some(bias) = own.windows(2).position(|two| two[0].0 == "bias" && two[1].0 == "weight") {
        own.swap(bias, bias + 1);
    }
    let own = own.into_iter().map(|(_, parameter)| parameter);
    children.flat_map(children_before_own).chain(own).collect()
}
