//! What exercises and solutions use.

pub use crate::agree::{agree, agree_equal};
pub use anyhow::Result;
pub use std::collections::BTreeMap;
use std::time::Duration;
pub use tch::nn::{self, Module, VarStore};
pub use tch::{Device, Kind, Tensor, no_grad};
pub use tch_parallel::checkpoint::{self, Training};
pub use tch_parallel::distributed::hooks::{self, Finish, GradBucket};
pub use tch_parallel::distributed::{
    DdpOptions, DeviceChoice, DistributedDataParallel, FullyShard, JoinOptions, P2pOp,
    ProcessGroup, ProcessGroupOptions, ReduceOp, Store, functional, init_process_group, spawn,
};
pub use tch_parallel::optim::{Optimizer, Sgd, SgdOptions};

/// A model that is only one parameter.
pub type Ddp = DistributedDataParallel<Tensor>;

/// A rank does not wait for ever for one that has forgotten to take part.
pub fn options() -> ProcessGroupOptions {
    let timeout = Some(Duration::from_secs(60));
    ProcessGroupOptions { device: DeviceChoice::Cpu, timeout, ..Default::default() }
}

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
