//! `torch.distributed.optim.ZeroRedundancyOptimizer`: one optimizer state, sharded over the ranks.

use super::{GroupOptions, Optimizer, OptimizerState, ParamGroup, ParamGroupOptimizer};
use super::{UpdateRule, post_local_sgd::filtered};
use crate::distributed::{JoinConfig, Joinable, ProcessGroup, fsdp::shards};
use crate::{Error, Result};
use std::{cmp::Reverse, collections::HashMap};
use tch::{Kind, Tensor};
use tch_parallel_base::named_tensors::{NamedTensors, from_bytes, to_bytes};

/// The buffer size for copying parameters: the same as DistributedDataParallel's buckets of gradients.
pub(super) const BROADCAST_BUFFER_BYTES: usize = 25 << 20;

/// An optimizer in which each rank updates only its share of the parameters.
///
/// With DistributedDataParallel every rank has all gradients, so all ranks compute the same steps and keep the same
/// state. Here each rank makes the steps of its share, keeps only that state, and sends the updated parameters to the
/// others: the first stage of ZeRO (Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter
/// Models", 2019). The results equal those of the unsharded optimizer to the last bit; the state takes `1 / world_size`
/// of the memory; a step costs a broadcast of all parameters. Ranks that run Python need `parameters_as_bucket_view=False`.
///
/// ```
/// use tch::{Kind, Tensor, nn};
/// use tch_parallel::distributed::ProcessGroup;
/// use tch_parallel::optim::{Adam, AdamOptions, Optimizer, ZeroRedundancyOptimizer};
///
/// let group = ProcessGroup::from_env()?;
/// let vs = nn::VarStore::new(group.device());
/// let model = nn::linear(vs.root() / "fc", 8, 3, Default::default());
/// let adam = Adam::new(&vs, AdamOptions::default())?;
/// let mut optimizer = ZeroRedundancyOptimizer::new(adam, &group);
///
/// let images = Tensor::ones([4, 8], (Kind::Float, group.device()));
/// images.apply(&model).mean(Kind::Float).backward(); // of DistributedDataParallel in a real job
/// optimizer.step()?;
/// // This rank's share, here all 27 numbers: two means of four bytes each, and two step counters.
/// assert_eq!(optimizer.state_bytes(), 27 * 2 * 4 + 2 * 4);
/// # Ok::<(), tch_parallel::Error>(())
/// ```
#[derive(Debug)]
pub struct ZeroRedundancyOptimizer<R> {
    /// Of all parameters; it keeps the state of this rank's share only.
    optimizer: ParamGroupOptimizer<R>,
    /// The rank that updates each parameter.
    owners: HashMap<String, usize>,
    /// The state of all ranks, if it was gathered here and no step has been made since.
    consolidated: Option<Vec<(String, Tensor)>>,
    group: ProcessGroup,
    join_config: JoinConfig,
}

impl<R: UpdateRule> ZeroRedundancyOptimizer<R> {
    /// Shards an optimizer, which all ranks must have created for the same parameters in the same groups. This rank
    /// keeps its share of the state, which is empty on some ranks if there are more ranks than parameters.
    pub fn new(optimizer: ParamGroupOptimizer<R>, group: &ProcessGroup) -> Self {
        let mut sharded = ZeroRedundancyOptimizer {
            optimizer,
            owners: HashMap::new(),
            consolidated: None,
            group: group.clone(),
            join_config: JoinConfig::default(),
        };
        sharded.share_out();
        sharded
    }

    /// [`ParamGroupOptimizer::add_param_group`]. The shares of the groups so far remain.
    pub fn add_param_group(&mut self, group: ParamGroup<R>) -> Result<()> {
        self.optimizer.add_param_group(group)?;
        self.share_out();
        self.consolidated = None;
        Ok(())
    }

    /// [`ParamGroupOptimizer::param_groups`]
    pub fn param_groups(&self) -> &[ParamGroup<R>] {
        self.optimizer.param_groups()
    }

    /// [`ParamGroupOptimizer::param_groups_mut`]: all ranks must set the same options.
    pub fn param_groups_mut(&mut self) -> &mut [ParamGroup<R>] {
        self.optimizer.param_groups_mut()
    }

    fn share_out(&mut self) {
        let groups = self.optimizer.param_groups();
        let sizes = |group: &ParamGroup<R>| group.tensors().iter().map(Tensor::numel).collect();
        let sizes: Vec<Vec<_>> = groups.iter().map(sizes).collect();
        let owners = partition(&sizes, self.group.world_size());
        let names = groups.iter().flat_map(ParamGroup::names).map(str::to_owned);
        self.owners = names.zip(owners.into_iter().flatten()).collect();
        let (owners, rank) = (&self.owners, self.group.rank());
        self.optimizer.retain_state(|name| owners.get(name) == Some(&rank));
    }

    /// [`step`](Optimizer::step), without telling a join about it.
    fn step_and_share(&mut self) -> Result<()> {
        self.consolidated = None;
        let parameters = named(self.optimizer.param_groups());
        let instead = "an optimizer of shards keeps only their state anyway";
        shards::refuse("ZeroRedundancyOptimizer", &parameters, instead)?;
        let (owners, rank) = (&self.owners, self.group.rank());
        self.group.or_report(self.optimizer.step_where(|name| owners.get(name) == Some(&rank)))?;
        // Python sends one parameter at a time, as it lies in memory.
        let has_python = self.group.has_python();
        let bytes = if has_python { 1 } else { BROADCAST_BUFFER_BYTES };
        let sent = |(_, tensor)| if has_python { in_memory_order(&tensor) } else { Ok(tensor) };
        for rank in 0..self.group.world_size() {
            let share = self.share_of(rank).map(sent).collect::<Result<Vec<_>>>()?;
            if !share.is_empty() {
                let step = "ZeroRedundancyOptimizer::step";
                self.group.broadcast_coalesced(step, &share, bytes, rank)?;
            }
        }
        Ok(())
    }

    /// The names of the parameters that this rank updates.
    pub fn share(&self) -> Vec<&str> {
        self.share_of(self.group.rank()).map(|(name, _)| name).collect()
    }

    /// In PyTorch's order: within a group, the largest first.
    fn share_of(&self, rank: usize) -> impl Iterator<Item = (&str, Tensor)> {
        let parameters = self.optimizer.param_groups().iter().flat_map(|group| {
            let mut of_group: Vec<_> = group.names().into_iter().zip(group.tensors()).collect();
            of_group.sort_by_key(|(_, tensor)| Reverse(tensor.numel()));
            of_group
        });
        parameters.filter(move |(name, _)| self.owners.get(*name) == Some(&rank))
    }

    fn own_state(&self) -> Result<NamedTensors> {
        Ok(self.group.or_report(self.optimizer.state_dict())?.tensors.into_iter().collect())
    }

    fn send_state(&self, to: usize) -> Result<()> {
        let bytes = self.own_state().and_then(|state| self.group.or_report(to_bytes(&state)))?;
        let on = self.group.exchange_device();
        // The length comes first, because receivers must allocate the buffer.
        self.group.send(&Tensor::from(bytes.len() as i64).f_to(on)?, to)?;
        self.group.send(&Tensor::from_slice(&bytes).f_to(on)?, to)
    }

    fn receive_state(&self, from: usize) -> Result<NamedTensors> {
        let on = self.group.exchange_device();
        let mut length = Tensor::f_zeros([0; 0], (Kind::Int64, on))?;
        self.group.recv(&mut length, from)?;
        let mut bytes = Tensor::f_zeros([length.f_int64_value(&[])?], (Kind::Uint8, on))?;
        self.group.recv(&mut bytes, from)?;
        Ok(from_bytes(&Vec::<u8>::try_from(bytes)?)?.0)
    }
}

impl<R: UpdateRule> Optimizer for ZeroRedundancyOptimizer<R> {
    /// Makes one step of this rank's share, then all ranks broadcast their updated parameters. A collective.
    ///
    /// # Errors
    /// Those of this rank's optimizer, which others learn about when it ends, and of [`Joinable::notify_join_context`].
    fn step(&mut self) -> Result<()> {
        self.notify_join_context()?;
        self.step_and_share()
    }

    fn param_groups(&self) -> Vec<&ParamGroup<dyn GroupOptions>> {
        Optimizer::param_groups(&self.optimizer)
    }

    fn param_groups_mut(&mut self) -> Vec<&mut ParamGroup<dyn GroupOptions>> {
        Optimizer::param_groups_mut(&mut self.optimizer)
    }

    /// Gathers the whole state on rank `to` until the next step; that of other ranks is kept in CPU memory.
    ///
    /// # Errors
    /// [`Error::Argument`] if a rank runs Python or has a state that cannot be sent, such as a sparse one: the other
    /// ranks learn about it when this one ends. Those of [every collective](ProcessGroup#errors).
    fn consolidate_state_dict(&mut self, to: usize) -> Result<()> {
        self.consolidated = None;
        let ranks = 0..self.group.world_size();
        self.group.refuse_python("consolidate_state_dict", ranks.clone())?;
        if self.group.rank() != to {
            return self.send_state(to);
        }
        let mut all: Vec<_> = self.own_state()?.into_iter().collect();
        for rank in ranks.filter(|&rank| rank != to) {
            all.extend(self.receive_state(rank)?);
        }
        all.sort_by(|(a, _), (b, _)| a.cmp(b));
        self.consolidated = Some(all);
        Ok(())
    }

    /// The state of the whole optimizer, which an unsharded optimizer can load as well.
    ///
    /// # Errors
    /// [`Error::Argument`] unless [`consolidate_state_dict`](Self::consolidate_state_dict) has
    /// gathered it on this rank since the last step.
    fn state_dict(&self) -> Result<OptimizerState> {
        let all = self.consolidated.as_ref().ok_or_else(|| {
            let call = format!("consolidate_state_dict({})", self.group.rank());
            let expected = format!("gathered on this one: call `{call}` on all of them");
            Error::argument("the optimizer's state", "sharded over the ranks", expected)
        })?;
        let tensors = all.iter().map(|(name, it)| (name.clone(), it.shallow_clone())).collect();
        Ok(OptimizerState { tensors, ..self.optimizer.state_dict()? })
    }

    /// Takes this rank's share from the state of the whole optimizer: the number of ranks may have changed.
    fn load_state_dict(&mut self, state: &OptimizerState) -> Result<()> {
        let rank = self.group.rank();
        // The optimizer refuses entries that belong to no parameter.
        let is_others = |name: &str| {
            let owner = name.rsplit_once('.').and_then(|(parameter, _)| self.owners.get(parameter));
            owner.is_some_and(|&owner| owner != rank)
        };
        self.optimizer.load_state_dict(&filtered(state, |name| !is_others(name)))?;
        self.consolidated = None;
        Ok(())
    }

    /// The parameters of this rank's share.
    fn state_bytes(&self) -> usize {
        self.optimizer.state_bytes()
    }
}

impl<R: UpdateRule> Joinable for ZeroRedundancyOptimizer<R> {
    fn join_process_group(&self) -> &ProcessGroup {
        &self.group
    }

    fn join_config(&self) -> &JoinConfig {
        &self.join_config
    }

    /// A step with the gradients that the parameters have.
    fn main_hook(&mut self) -> Result<()> {
        self.step_and_share()
    }
}

/// The parameters of all groups with their names.
pub(super) fn named<R>(groups: &[ParamGroup<R>]) -> Vec<(String, Tensor)> {
    let named = groups.iter().flat_map(|group| group.names().into_iter().zip(group.tensors()));
    named.map(|(name, tensor)| (name.to_owned(), tensor)).collect()
}

/// The same tensor with its dimensions ordered so that its elements lie one after the other.
fn in_memory_order(tensor: &Tensor) -> Result<Tensor> {
    let strides = tensor.stride();
    let mut dims: Vec<_> = (0..strides.len() as i64).collect();
    dims.sort_by_key(|&dim| Reverse(strides[dim as usize]));
    Ok(tensor.f_permute(dims)?)
}

/// The rank that updates each parameter of each group, given the sizes: one group after the other,
/// largest first, each goes to the rank that has the least.
fn partition(groups: &[Vec<usize>], world_size: usize) -> Vec<Vec<usize>> {
    let mut loads = vec![0; world_size];
    let mut owners = Vec::new();
    for sizes in groups {
        let mut places: Vec<_> = (0..sizes.len()).collect();
        places.sort_by_key(|&place| Reverse(sizes[place]));
        let mut of_group = vec![0; sizes.len()];
        for place in places {
            if let Some((rank, load)) = loads.iter_mut().enumerate().min_by_key(|(_, it)| **it) {
                *load += sizes[place];
                of_group[place] = rank;
            }
        }
        owners.push(of_group);
    }
    owners
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What torch 2.13's `_partition_parameters` returns for the layers of a small network, in one group and in two.
    #[test]
    fn shares_are_those_of_pytorch() {
        let sizes = vec![864, 32, 32, 9216, 32, 73728, 64, 640, 10, 64, 64];
        let one = [sizes.clone()];
        assert_eq!(partition(&one, 2), [[1, 1, 1, 1, 1, 0, 1, 1, 1, 1, 1]]);
        assert_eq!(partition(&one, 5), [[2, 4, 4, 1, 4, 0, 4, 3, 4, 4, 4]]);
        assert_eq!(partition(&[vec![5, 5]], 3), [[0, 1]]);
        let two = [sizes[..4].to_vec(), sizes[4..].to_vec()];
        assert_eq!(partition(&two, 2), [vec![1, 1, 1, 0], vec![0, 1, 0, 0, 0, 0, 0]]);
        assert_eq!(partition(&two, 3), [vec![1, 2, 2, 0], vec![1, 2, 1, 1, 1, 1, 1]]);
    }
}
