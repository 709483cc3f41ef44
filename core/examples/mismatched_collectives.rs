//! Two ranks in two different collectives: each takes the other's bytes for what it waits for.
//!
//! ```text
//! cargo launch -n 2 -- cargo run -rq -p tch-parallel --example mismatched_collectives
//! ```

use anyhow::Result;
use std::process::ExitCode;
use tch::{Kind, Tensor};
use tch_parallel::distributed::{AvgMetric, ProcessGroup, ReduceOp};
use tch_parallel::report::exit_code;

fn main() -> ExitCode {
    exit_code(run())
}

fn run() -> Result<()> {
    // ANCHOR: mismatch
    let group = ProcessGroup::from_env()?;
    if group.rank() == 0 {
        let mut loss = AvgMetric::new();
        loss.update(1.0, 1);
        println!("mean loss: {}", loss.summarize(&group)?);
    } else {
        // It is already in the next step, and exchanges the gradients of 118,272 parameters.
        let mut gradients = Tensor::zeros([118_272], (Kind::Float, group.device()));
        group.all_reduce(&mut gradients, ReduceOp::Sum)?;
    }
    // ANCHOR_END: mismatch
    Ok(())
}
