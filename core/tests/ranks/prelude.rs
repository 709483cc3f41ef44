//! What most of these tests use.

pub(crate) use crate::common::{self, on_ranks, on_ranks_with_each_transport};
pub(crate) use tch::kind::{DOUBLE_CPU, FLOAT_CPU, INT64_CPU};
pub(crate) use tch::nn::{self, Module, ModuleT, VarStore};
pub(crate) use tch::{Device, Kind, Tensor, no_grad};
pub(crate) use tch_parallel::Error;
pub(crate) use tch_parallel::distributed::{
    DdpOptions, DistributedDataParallel, ProcessGroup, ReduceOp,
};
pub(crate) use tch_parallel::optim::{Optimizer, Sgd, SgdOptions};
