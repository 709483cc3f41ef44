//! `torch.distributed.optim.ZeroRedundancyOptimizer`: one optimizer state, sharded over the ranks.

use super::optimizer::{Optimizer, OptimizerState, trainable};
use crate::distributed::ProcessGroup;
use crate::named_tensors::{NamedTensors, from_bytes, to_bytes};
use crate::{Error, Result};
use std::collections::HashSet;
use tch::nn::VarStore;
use tch::{Kind, Tensor};

/// The buffer size for copying parameters: the same as DistributedDataParallel's buckets of
/// gradients.
const BROADCAST_BUFFER_BYTES: usize = 25 << 20;

/// An optimizer in which each rank updates only its share of the parameters.
///
/// With DistributedDataParallel every rank has all gradients, so all ranks compute the same steps
/// and keep the same state. Here each rank makes the steps of its share, keeps only that state, and
/// sends the updated parameters to the others: the first stage of ZeRO (Rajbhandari et al., "ZeRO:
/// Memory Optimizations Toward Training Trillion Parameter Models", 2019). The results equal those
/// of the unsharded optimizer to the last bit; the state takes `1 / world_size` of the memory; a
/// step costs a broadcast of all parameters.
///
/// ```
/// use tch::{Kind, Tensor, nn};
/// use tch_parallel::distributed::ProcessGroup;
/// use tch_parallel::optim::{Adam, AdamOptions, Optimizer, ZeroRedundancyOptimizer};
///
/// let group = ProcessGroup::from_env()?;
/// let vs = nn::VarStore::new(group.device());
/// let model = nn::linear(vs.root() / "fc", 8, 3, Default::default());
/// let mut optimizer = ZeroRedundancyOptimizer::new(&vs, &group, |share| {
///     Adam::from_named_parameters(share, AdamOptions::default())
/// })?;
///
/// let images = Tensor::ones([4, 8], (Kind::Float, group.device()));
/// images.apply(&model).mean(Kind::Float).backward(); // of DistributedDataParallel in a real job
/// optimizer.step()?;
/// // This rank's share, here all 27 numbers: two means of four bytes each, and two step counters.
/// assert_eq!(optimizer.state_bytes(), 27 * 2 * 4 + 2 * 4);
/// # Ok::<(), tch_parallel::Error>(())
/// ```
#[derive(Debug)]
pub struct ZeroRedundancyOptimizer<O> {
    /// The optimizer of this rank's share.
    optimizer: O,
    /// All parameters, in PyTorch's order.
    parameters: Vec<(String, Tensor)>,
    /// For each rank, the indices of its parameters in that list.
    shares: Vec<Vec<usize>>,
    /// The state of all ranks, if it was gathered here and no step has been made since.
    consolidated: Option<Vec<(String, Tensor)>>,
    group: ProcessGroup,
}

impl<O: Optimizer> ZeroRedundancyOptimizer<O> {
    /// Makes an optimizer for this rank's share of the trainable variables, which is empty on some
    /// ranks if there are more ranks than parameters. All ranks must have built the same model.
    ///
    /// # Errors
    /// Those of `optimizer`, and [`Error::Argument`] for a store without parameters.
    pub fn new(
        vs: &VarStore,
        group: &ProcessGroup,
        optimizer: impl FnOnce(Vec<(String, Tensor)>) -> Result<O>,
    ) -> Result<Self> {
        let parameters = trainable(vs)?;
        let sizes: Vec<_> = parameters.iter().map(|(_, tensor)| tensor.numel()).collect();
        let shares = partition(&sizes, group.world_size());
        let own = shares[group.rank()].iter().map(|&place| {
            let (name, tensor) = &parameters[place];
            (name.clone(), tensor.shallow_clone())
        });
        let optimizer = optimizer(own.collect())?;
        Ok(ZeroRedundancyOptimizer {
            optimizer,
            parameters,
            shares,
            consolidated: None,
            group: group.clone(),
        })
    }

    fn send_state(&self, to: usize) -> Result<()> {
        let state: NamedTensors = self.optimizer.state_dict()?.tensors.into_iter().collect();
        let bytes = to_bytes(&state)?;
        let on = self.group.exchange_device();
        let move_there = |tensor: Tensor| tensor.f_to(on).map_err(Error::tensor(CONSOLIDATE));
        // The length comes first, because receivers must allocate the buffer.
        self.group.send(&move_there(Tensor::from(bytes.len() as i64))?, to)?;
        self.group.send(&move_there(Tensor::from_slice(&bytes))?, to)
    }

    fn receive_state(&self, from: usize) -> Result<NamedTensors> {
        let on = self.group.exchange_device();
        let failed = || Error::tensor(CONSOLIDATE);
        let mut length = Tensor::f_zeros([0; 0], (Kind::Int64, on)).map_err(failed())?;
        self.group.recv(&mut length, from)?;
        let length = length.f_int64_value(&[]).map_err(failed())?;
        let mut bytes = Tensor::f_zeros([length], (Kind::Uint8, on)).map_err(failed())?;
        self.group.recv(&mut bytes, from)?;
        let bytes = Vec::<u8>::try_from(bytes).map_err(failed())?;
        Ok(from_bytes(&bytes)?.0)
    }
}

const CONSOLIDATE: &str = "consolidate_state_dict";

impl<O: Optimizer> Optimizer for ZeroRedundancyOptimizer<O> {
    /// Makes one step of this rank's share, then all ranks broadcast their updated parameters. A
    /// collective.
    ///
    /// # Errors
    /// Those of this rank's own optimizer; the other ranks learn about them when this one ends.
    fn step(&mut self) -> Result<()> {
        self.consolidated = None;
        self.optimizer.step().inspect_err(|error| self.group.report(&error.to_string()))?;
        for (rank, share) in self.shares.iter().enumerate() {
            let tensors: Vec<_> =
                share.iter().map(|&place| self.parameters[place].1.shallow_clone()).collect();
            if !tensors.is_empty() {
                self.group.broadcast_coalesced(
                    "ZeroRedundancyOptimizer::step",
                    &tensors,
                    BROADCAST_BUFFER_BYTES,
                    rank,
                )?;
            }
        }
        Ok(())
    }

    /// All parameters, whichever rank updates them: all have gradients.
    fn parameters(&self) -> Vec<Tensor> {
        self.parameters.iter().map(|(_, tensor)| tensor.shallow_clone()).collect()
    }

    fn lr(&self) -> f64 {
        self.optimizer.lr()
    }

    fn set_lr(&mut self, lr: f64) {
        self.optimizer.set_lr(lr);
    }

    /// Gathers the whole state on rank `to` until the next step; that of other ranks is kept in CPU
    /// memory.
    fn consolidate_state_dict(&mut self, to: usize) -> Result<()> {
        self.consolidated = None;
        if self.group.rank() != to {
            return self.send_state(to);
        }
        let mut all = self.optimizer.state_dict()?.tensors;
        for rank in (0..self.group.world_size()).filter(|&rank| rank != to) {
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
        let all = self.consolidated.as_ref().ok_or_else(|| Error::Argument {
            what: "the optimizer's state".into(),
            found: "sharded over the ranks".into(),
            expected: format!(
                "gathered on this one: call `consolidate_state_dict({})` on all of them",
                self.group.rank()
            ),
        })?;
        let tensors =
            all.iter().map(|(name, tensor)| (name.clone(), tensor.shallow_clone())).collect();
        Ok(OptimizerState { tensors, ..self.optimizer.state_dict()? })
    }

    /// Takes this rank's share from the state of the whole optimizer: the number of ranks may have
    /// changed.
    fn load_state_dict(&mut self, state: &OptimizerState) -> Result<()> {
        let own: HashSet<&str> = self.shares[self.group.rank()]
            .iter()
            .map(|&place| self.parameters[place].0.as_str())
            .collect();
        let others: HashSet<&str> = self
            .parameters
            .iter()
            .map(|(name, _)| name.as_str())
            .filter(|name| !own.contains(name))
            .collect();
        // The inner optimizer refuses entries that belong to no parameter.
        let is_others = |name: &str| {
            name.rsplit_once('.').is_some_and(|(parameter, _)| others.contains(parameter))
        };
        let tensors = state
            .tensors
            .iter()
            .filter(|(name, _)| !is_others(name))
            .map(|(name, tensor)| (name.clone(), tensor.shallow_clone()))
            .collect();
        self.optimizer.load_state_dict(&OptimizerState {
            optimizer: state.optimizer.clone(),
            options: state.options.clone(),
            tensors,
        })?;
        self.consolidated = None;
        Ok(())
    }

    /// The parameters of this rank's share.
    fn state_bytes(&self) -> usize {
        self.optimizer.state_bytes()
    }
}

/// Which rank updates which parameters: largest first, each goes to the rank that has the least.
fn partition(sizes: &[usize], world_size: usize) -> Vec<Vec<usize>> {
    let mut places: Vec<_> = (0..sizes.len()).collect();
    places.sort_by_key(|&place| std::cmp::Reverse(sizes[place]));
    let mut shares = vec![(0, Vec::new()); world_size];
    for place in places {
        if let Some((load, share)) = shares.iter_mut().min_by_key(|(load, _)| *load) {
            *load += sizes[place];
            share.push(place);
        }
    }
    shares.into_iter().map(|(_, share)| share).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What torch 2.11's `_partition_parameters` returns for the layers of a small network.
    #[test]
    fn shares_are_those_of_pytorch() {
        let sizes = [864, 32, 32, 9216, 32, 73728, 64, 640, 10, 64, 64];
        assert_eq!(partition(&sizes, 2), [vec![5], vec![3, 0, 7, 6, 9, 10, 1, 2, 4, 8]],);
        assert_eq!(
            partition(&sizes, 5),
            [vec![5], vec![3], vec![0], vec![7], vec![6, 9, 10, 1, 2, 4, 8]],
        );
        assert_eq!(partition(&[5, 5], 3), [vec![0], vec![1], vec![]]);
    }
}
