//! What exercises and solutions use.

pub use crate::agree::{agree, agree_equal};
pub use anyhow::Result;
pub use std::collections::BTreeMap;
pub use tch::nn::{self, Module, VarStore};
pub use tch::{Device, Kind, Tensor, no_grad};
pub use tch_parallel::checkpoint::{self, Training};
pub use tch_parallel::distributed::hooks::{self, Finish, GradBucket};
pub use tch_parallel::distributed::{
    DdpOptions, DistributedDataParallel, FullyShard, JoinOptions, P2pOp, ProcessGroup,
    ProcessGroupOptions, ReduceOp, Store, functional,
};
pub use tch_parallel::optim::{Optimizer, Sgd, SgdOptions};

/// A store with one parameter.
pub fn one_weight(values: &[f32]) -> (VarStore, Tensor) {
    let vs = VarStore::new(Device::Cpu);
    let weight = vs.root().var_copy("weight", &Tensor::from_slice(values));
    (vs, weight)
}

/// `weight` times `input`, summed up: its gradient is `input`.
pub fn product(weight: &Tensor, input: &Tensor) -> Tensor {
    (weight * input).sum(Kind::Float)
}
