//! What most of these tests use.

pub(crate) use crate::common::{
    self, SHARED_MEMORY, Saved, after_python, ddp, expect_equal, fill, hooked, labels, numbers,
    on_ranks, on_ranks_with_each_transport, panics, save, sgd, training, values,
};
pub(crate) use std::sync::{Arc, Mutex, atomic::AtomicUsize, atomic::Ordering, mpsc};
pub(crate) use std::time::{Duration, Instant};
pub(crate) use std::{collections::BTreeMap, fs, path::Path, process::Command};
pub(crate) use tch::kind::{DOUBLE_CPU, FLOAT_CPU, INT64_CPU};
pub(crate) use tch::nn::{self, Module, ModuleT, VarStore};
pub(crate) use tch::{Device, Kind, Tensor, no_grad};
pub(crate) use tch_parallel::amp::{GradScaler, GradScalerOptions, autocast};
pub(crate) use tch_parallel::checkpoint::{self, Generators, Training};
pub(crate) use tch_parallel::distributed::hooks::{self, CommHook, Finish, GradBucket};
pub(crate) use tch_parallel::distributed::*;
pub(crate) use tch_parallel::memory::*;
pub(crate) use tch_parallel::nn::{CheckpointWrapper, channels_last_weights, named_parameters};
pub(crate) use tch_parallel::optim::*;
pub(crate) use tch_parallel::{Error, LogicalDevice, Result};
pub(crate) use tests::errors::{expect_error, expect_error_start, message};
pub(crate) use tests::wait::{past, until};
pub(crate) use tests::{expect_texts, run_by};
