//! How long ranks take to meet and to make a model.
//!
//! ```text
//! cargo launch -n 8 -- cargo run -rq -p tch-parallel --example start_up
//! ```

use anyhow::Result;
use report::{exit, say};
use std::time::{SystemTime, UNIX_EPOCH};
use tch::{Device, Tensor, nn, nn::VarStore};
use tch_parallel::distributed::{DistributedDataParallel, ProcessGroup, ReduceOp};

fn main() {
    exit(run)
}

fn run() -> Result<()> {
    let begun = now()?;
    let group = ProcessGroup::from_env()?;
    let vs = VarStore::new(Device::Cpu);
    let linear = nn::linear(vs.root(), 1, 1, Default::default());
    let _model = DistributedDataParallel::new(linear, &vs, &group)?;
    let ready = now()?;

    // Each process loads libtorch first, which takes longer the fewer cores there are.
    let mut latest = Tensor::from_slice(&[begun, ready]);
    group.all_reduce(&mut latest, ReduceOp::Max)?;
    let seconds = latest.double_value(&[1]) - latest.double_value(&[0]);
    let ranks = format!("{} ranks, {}", group.world_size(), group.transport());
    say(&group, format!("{ranks}: ready {seconds:.3} s after the last one has begun"));
    Ok(())
}

/// The seconds since 1970, which the processes of a host agree on.
fn now() -> Result<f64> {
    Ok(SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs_f64())
}
