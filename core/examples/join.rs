//! Rank 0 has five batches, rank 1 has three.
//!
//! ```text
//! cargo launch -n 2 --tee 1 -- cargo run -rq -p tch-parallel --example join without
//! cargo launch -n 2 --tee 1 -- cargo run -rq -p tch-parallel --example join with
//! cargo launch -n 2 --tee 1 -- cargo run -rq -p tch-parallel --example join divide_by_those_left
//! cargo launch -n 2 --tee 1 -- cargo run -rq -p tch-parallel --example join throw
//! ```

use anyhow::{Result, bail};
use report::exit;
use std::env;
use tch::{Kind, Tensor, nn, nn::VarStore};
use tch_parallel::distributed::{DistributedDataParallel, JoinOptions, ProcessGroup};
use tch_parallel::optim::{Optimizer, Sgd, SgdOptions};

fn main() {
    exit(run)
}

fn run() -> Result<()> {
    let group = ProcessGroup::from_env()?;
    let default = JoinOptions::default();
    let options = match env::args().nth(1).as_deref() {
        Some("without") => None,
        Some("with") => Some(default),
        Some("divide_by_those_left") => {
            Some(JoinOptions { divide_by_initial_world_size: false, ..default })
        }
        Some("throw") => Some(JoinOptions { throw_on_early_termination: true, ..default }),
        _ => bail!("expected one of without, with, divide_by_those_left and throw"),
    };
    let vs = VarStore::new(group.device());
    let line = nn::LinearConfig { ws_init: nn::Init::Const(1.0), bs_init: None, bias: false };
    let line = nn::linear(vs.root(), 1, 1, line);
    let model = DistributedDataParallel::new(line, &vs, &group)?;
    let mut optimizer = Sgd::new(&vs, SgdOptions { lr: 0.1, ..Default::default() })?;

    // ANCHOR: training
    let weight = &vs.trainable_variables()[0];
    let batches = 5 - 2 * group.rank();
    let mut training = || -> Result<()> {
        for step in 1..=batches {
            // Each rank's own gradient is 1.
            let x = Tensor::ones([1, 1], (Kind::Float, group.device()));
            let loss = model.f_forward_t(&x, true)?.sum(Kind::Float);
            optimizer.zero_grad()?;
            model.backward(&loss)?;
            optimizer.step()?;
            println!("step {step}: gradient {}", weight.grad().double_value(&[0, 0]));
        }
        Ok(())
    };
    match options {
        Some(options) => model.join(options, training)?,
        None => training()?,
    }
    // ANCHOR_END: training
    println!("weight {:.2}", weight.double_value(&[0, 0]));
    Ok(())
}
