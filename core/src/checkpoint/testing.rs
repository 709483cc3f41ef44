//! What the tests of checkpoints share.

use crate::distributed::ProcessGroup;
use std::path::PathBuf;
use tch::Device;
use tch::nn::{self, VarStore};
use tempfile::TempDir;

pub(super) fn model(features: i64) -> VarStore {
    let vs = VarStore::new(Device::Cpu);
    let _ = nn::linear(&vs.root() / "fc", features, 2, Default::default());
    vs
}

pub(super) fn group() -> ProcessGroup {
    // No launcher starts unit tests.
    ProcessGroup::from_env().unwrap()
}

/// An empty directory, and a path in it.
pub(super) fn path_to(name: &str) -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join(name);
    (directory, path)
}
