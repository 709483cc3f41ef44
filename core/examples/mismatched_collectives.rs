//! Two ranks in two different collectives. On one host they are told so; over sockets each takes the
//! other's bytes for what it waits for.
//!
//! ```text
//! cargo launch -n 2 -- cargo run -rq -p tch-parallel --example mismatched_collectives
//! TCH_PARALLEL_SHARED_MEMORY=0 cargo launch -n 2 -- cargo run -rq -p tch-parallel --example mismatched_collectives
//! ```

use anyhow::Result;
use report::exit;
use tch::{Kind, Tensor};
use tch_parallel::distributed::{ProcessGroup, ReduceOp};

fn main() {
    exit(run)
}

fn run() -> Result<()> {
    // ANCHOR: mismatch
    let group = ProcessGroup::from_env()?;
    let (mut loss, mut count) = (Tensor::from(1.0f64), Tensor::from(1i64));
    if group.rank() == 0 {
        group.all_reduce(&mut loss, ReduceOp::Sum)?;
        println!("rank 0: 1.0 and 1.0 are {}", f64::try_from(&loss)?);
    } else {
        group.all_reduce(&mut count, ReduceOp::Sum)?;
        println!("rank 1: 1 and 1 are {}", i64::try_from(&count)?);
    }

    if group.rank() == 0 {
        group.all_reduce(&mut loss, ReduceOp::Sum)?;
    } else {
        let mut gradients = Tensor::zeros([118_272], (Kind::Float, group.device()));
        group.all_reduce(&mut gradients, ReduceOp::Sum)?;
    }
    // ANCHOR_END: mismatch
    Ok(())
}
