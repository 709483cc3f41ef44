//! The state of AdamW, on every rank and shared out.
//!
//! ```text
//! cargo launch -n 2 --tee 1 -- cargo run -rq -p tch-parallel --example zero_redundancy
//! ```

use anyhow::Result;
use tch::{Kind, Tensor, nn::ModuleT, nn::VarStore, nn::seq};
use tch_parallel::distributed::{DistributedDataParallel, ProcessGroup};
use tch_parallel::nn::{LinearOptions, linear};
use tch_parallel::optim::{Adam, AdamOptions, Optimizer, ZeroRedundancyOptimizer};

fn main() -> Result<()> {
    let group = ProcessGroup::from_env()?;
    // ANCHOR: optimizers
    let on_every_rank = train(&group, |vs| {
        let optimizer = Adam::new(vs, AdamOptions::adamw())?;
        Ok(Box::new(optimizer))
    })?;
    let shared_out = train(&group, |vs| {
        let adamw = Adam::new(vs, AdamOptions::adamw())?;
        let optimizer = ZeroRedundancyOptimizer::new(adamw, &group);
        println!("my share is {}", optimizer.share().join(", "));
        Ok(Box::new(optimizer))
    })?;
    // ANCHOR_END: optimizers
    let equal = on_every_rank.iter().zip(&shared_out).all(|(a, b)| a.equal(b));
    println!("the weights are {}", if equal { "equal to the bit" } else { "different" });
    Ok(())
}

/// Takes three steps, prints how large the optimizer's state has become, and gives the weights.
fn train(
    group: &ProcessGroup,
    optimizer: impl FnOnce(&VarStore) -> Result<Box<dyn Optimizer>>,
) -> Result<Vec<Tensor>> {
    tch::manual_seed(0);
    let vs = VarStore::new(group.device());
    let layer =
        |name, inputs, outputs| linear(vs.root() / name, inputs, outputs, LinearOptions::default());
    let mlp = seq()
        .add(layer("fc1", 784, 512))
        .add_fn(|x| x.relu())
        .add(layer("fc2", 512, 512))
        .add_fn(|x| x.relu())
        .add(layer("fc3", 512, 10));
    let model = DistributedDataParallel::new(mlp, &vs, group)?;
    let mut optimizer = optimizer(&vs)?;

    tch::manual_seed(group.rank() as i64);
    for _ in 0..3 {
        let images = Tensor::rand([16, 784], (Kind::Float, group.device()));
        let labels = Tensor::randint(10, [16], (Kind::Int64, group.device()));
        let loss = model.forward_t(&images, true).cross_entropy_for_logits(&labels);
        optimizer.zero_grad()?;
        model.backward(&loss)?;
        optimizer.step()?;
    }
    println!("my optimizer's state has {} bytes", optimizer.state_bytes());
    Ok(vs.trainable_variables())
}
