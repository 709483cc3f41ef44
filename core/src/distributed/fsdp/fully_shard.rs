//! Shards a model while it is built: `torch.distributed.fsdp.fully_shard`.

use super::module::FsdpModule;
use super::parameter::Parameter;
use super::schedule::{Schedule, lock};
use super::unit::Unit;
use crate::distributed::group::ProcessGroup;
use crate::{Error, Result};
use c10d_sys::tensor::identity;
use std::borrow::Borrow;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::{Arc, Mutex};
use tch::Kind;
use tch::nn::{Path, VarStore};
use tch_parallel_base::options;

/// The keyword arguments of `fully_shard`.
#[derive(Debug, Clone, Default)]
pub struct FullyShardOptions {
    /// Whether the whole parameters are freed after a forward pass, and gathered again for the backward
    /// pass: less memory against another all-gather. `None`: yes, but for the root, whose backward
    /// pass begins at once.
    pub reshard_after_forward: Option<bool>,
    /// The kinds of numbers in which the model computes and reduces.
    pub mp_policy: MixedPrecisionPolicy,
}

options! {
    /// `torch.distributed.fsdp.MixedPrecisionPolicy`, with PyTorch's defaults: `None` leaves a kind as
    /// it is. The shards, and with them the optimizer, keep the kind in which the model was built.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct MixedPrecisionPolicy {
        /// Of the gathered parameters, and so of what the layers compute.
        pub param_dtype: Option<Kind> = None,
        /// Of the gradients while they are reduced, and added up without a reduction. `None`: that of
        /// the gathered parameters.
        pub reduce_dtype: Option<Kind> = None,
        /// Of what each block returns.
        pub output_dtype: Option<Kind> = None,
        /// Whether each block's inputs become `param_dtype`.
        pub cast_forward_inputs: bool = true,
    }
}

/// `torch.distributed.fsdp.fully_shard` (FSDP2): shards the parameters, the gradients and the
/// optimizer's state over the ranks of a group.
///
/// Each block that is built with [`shard`](Self::shard) is a unit: its parameters are gathered before its
/// forward and its backward pass and freed after them, and its gradients are reduced to each rank's
/// shard while the backward pass goes on. What is left belongs to the [`root`](Self::root). A block is
/// sharded as soon as it is built, so that no rank ever holds the whole model.
///
/// The layers are tch's own. From here on, the variable store holds the shards: an optimizer made from
/// it trains them, and [`VarStore::save`] would write one rank's. Use the same seed on all ranks, so
/// that they begin with the shards of one model.
///
/// The bits are those of PyTorch's `fully_shard`. With more than two ranks they differ from
/// DistributedDataParallel's, which adds in another order.
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
///         let block = |xs: Tensor, block: &FsdpModule<nn::Linear>| block.forward_t(&xs, train).relu();
///         self.blocks.iter().fold(xs.shallow_clone(), block).apply_t(&self.head, train)
///     }
/// }
///
/// let group = ProcessGroup::from_env()?;
/// let vs = nn::VarStore::new(group.device());
/// let sharding = FullyShard::new(&vs, &group, FullyShardOptions::default());
/// let linear = |path: &nn::Path, outputs| nn::linear(path, 8, outputs, Default::default());
/// let model = sharding.root(|root| {
///     let blocks = (0..3).map(|i| sharding.shard(root / "blocks" / i, |path| linear(path, 8)));
///     Ok(Net { blocks: blocks.collect::<Result<_, _>>()?, head: linear(&(root / "head"), 2) })
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
#[doc(alias = "FSDP")]
pub struct FullyShard<'a> {
    vs: &'a VarStore,
    group: ProcessGroup,
    options: FullyShardOptions,
    schedule: Arc<Schedule>,
    /// The variables that are shards by now.
    shards: Arc<Mutex<HashSet<usize>>>,
}

impl<'a> FullyShard<'a> {
    /// Shards over the ranks of `group` what will be built in `vs`.
    pub fn new(vs: &'a VarStore, group: &ProcessGroup, options: FullyShardOptions) -> Self {
        let (group, schedule, shards) = (group.clone(), Arc::default(), Arc::default());
        FullyShard { vs, group, options, schedule, shards }
    }

    /// The same model, with other options for the blocks that are built with what this returns: in
    /// PyTorch, every call of `fully_shard` has its own.
    pub fn with(&self, options: FullyShardOptions) -> FullyShard<'a> {
        FullyShard {
            vs: self.vs,
            group: self.group.clone(),
            options,
            schedule: Arc::clone(&self.schedule),
            shards: Arc::clone(&self.shards),
        }
    }

    /// Makes a unit of the block that `build` builds below `path`: of all its parameters that no unit
    /// inside it has.
    ///
    /// # Errors
    /// [`Error::Argument`] for a parameter that is a scalar, and for parameters of different kinds.
    pub fn shard<'p, M>(
        &self,
        path: impl Borrow<Path<'p>>,
        build: impl FnOnce(&Path<'p>) -> M,
    ) -> Result<FsdpModule<M>> {
        let path = path.borrow();
        let first = self.vs.trainable_variables().len();
        let module = build(path);
        let name: Vec<_> = path.components().collect();
        self.unit(module, first, name.join("."))
    }

    /// Makes the root of the whole model, which `build` builds with [`shard`](Self::shard) for its blocks.
    ///
    /// # Errors
    /// Those of `build`, and [`Error::Argument`] for a parameter that is a scalar.
    pub fn root<M>(&self, build: impl FnOnce(&Path<'_>) -> Result<M>) -> Result<FsdpModule<M>> {
        let module = build(&self.vs.root())?;
        self.unit(module, 0, String::new())
    }

    /// A unit of the variables from number `first` on that are not shards yet.
    fn unit<M>(&self, module: M, first: usize, name: String) -> Result<FsdpModule<M>> {
        let is_root = name.is_empty();
        let parameters = self.shard_variables(first)?;
        check_kinds(&parameters)?;
        let inner = |it: &Parameter| it.name[name.len()..].trim_start_matches('.').to_owned();
        let parameters = parameters.into_iter().map(|it| (inner(&it), it)).collect();
        let parameters = children_before_own(parameters);
        let reshard_after_forward = self.options.reshard_after_forward.unwrap_or(!is_root);
        let policy = self.options.mp_policy;
        let unit = Unit::new(
            name,
            parameters,
            reshard_after_forward,
            policy.reduce_dtype,
            &self.group,
            &self.schedule,
        );
        self.schedule.add(&unit, is_root);
        Ok(FsdpModule::new(module, unit, policy, &self.group))
    }

    /// Replaces the variables in the store by their shards.
    fn shard_variables(&self, first: usize) -> Result<Vec<Parameter>> {
        let mut variables = lock(&self.vs.variables_);
        let mut shards = lock(&self.shards);
        let names = variables.named_variables.iter();
        let names: HashMap<_, _> = names.map(|(name, it)| (identity(it), name.clone())).collect();
        let mut parameters = Vec::new();
        let kind = self.options.mp_policy.param_dtype;
        for place in first..variables.trainable_variables.len() {
            let whole = variables.trainable_variables[place].tensor.shallow_clone();
            if shards.contains(&identity(&whole)) {
                continue;
            }
            let Some(name) = names.get(&identity(&whole)) else { continue };
            let parameter = Parameter::shard(name.clone(), whole, kind, &self.group)?;
            let shard = parameter.local();
            shards.insert(identity(shard));
            variables.trainable_variables[place].tensor = shard.shallow_clone();
            variables.named_variables.insert(name.clone(), shard.shallow_clone());
            parameters.push(parameter);
        }
        Ok(parameters)
    }
}

impl fmt::Debug for FullyShard<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FullyShard")
            .field("group", &self.group)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

/// What is gathered together lies in one buffer.
fn check_kinds(parameters: &[Parameter]) -> Result<()> {
    let Some(first) = parameters.first() else { return Ok(()) };
    let other = parameters.iter().find(|it| it.whole_kind() != first.whole_kind());
    other.map_or(Ok(()), |other| {
        let [one, other] = [first, other].map(|it| format!("{} of {:?}", it.name, it.whole_kind()));
        let expected = "a block whose own parameters are of one kind, or param_dtype for all";
        Err(Error::argument("FullyShard", format!("given {one} and {other}"), expected))
    })
}

/// PyTorch's order (`_get_managed_modules`): the parameters of a module's children come before its own.
/// A number's place in the flat buffer decides in which order the ranks' values of it are added.
fn children_before_own(parameters: Vec<(String, Parameter)>) -> Vec<Parameter> {
    let mut children: Vec<(String, Vec<(String, Parameter)>)> = Vec::new();
    let mut own = Vec::new();
    for (name, parameter) in parameters {
        let Some((child, rest)) = name.split_once('.') else {
            own.push(parameter);
            continue;
        };
        let inner = (rest.to_owned(), parameter);
        match children.iter_mut().find(|(name, _)| name == child) {
            Some((_, list)) => list.push(inner),
            None => children.push((child.to_owned(), vec![inner])),
        }
    }
    children.into_iter().flat_map(|(_, list)| children_before_own(list)).chain(own).collect()
}
