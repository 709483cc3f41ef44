//! DistributedDataParallel with a sampler that shares nothing out: every rank trains on everything.
//!
//! ```text
//! cargo run -rq -p tch-parallel --example without_the_sampler
//! cargo launch -n 2 --tee 1 -- cargo run -rq -p tch-parallel --example without_the_sampler
//! ```

use anyhow::Result;
use tch::{Kind, Tensor, nn, nn::ModuleT, nn::VarStore};
use tch_parallel::data::{DistributedSampler, Sampler, SequentialSampler};
use tch_parallel::distributed::{DistributedDataParallel, ProcessGroup};
use tch_parallel::optim::{Optimizer, Sgd, SgdOptions};

fn main() -> Result<()> {
    let group = ProcessGroup::from_env()?;
    let own_part = DistributedSampler { shuffle: false, ..DistributedSampler::new(&group, 0) };
    train(&group, "SequentialSampler ", &SequentialSampler)?;
    train(&group, "DistributedSampler", &own_part)
}

fn train(group: &ProcessGroup, name: &str, sampler: &dyn Sampler) -> Result<()> {
    // ANCHOR: train
    let vs = VarStore::new(group.device());
    let line = nn::LinearConfig { ws_init: nn::Init::Const(0.0), bs_init: None, bias: false };
    let line = nn::linear(vs.root(), 1, 1, line);
    let model = DistributedDataParallel::new(line, &vs, group)?;
    let mut optimizer = Sgd::new(&vs, SgdOptions { lr: 0.01, ..Default::default() })?;

    // Eight points on the line y = 3x, in batches of two.
    let samples = sampler.indices(8, 0)?;
    for batch in samples.chunks(2) {
        let x: Vec<_> = batch.iter().map(|&index| index as f32).collect();
        let x = Tensor::from_slice(&x).view([-1, 1]).to(group.device());
        let loss = (model.forward_t(&x, true) - &x * 3.0).square().mean(Kind::Float);
        optimizer.zero_grad()?;
        model.backward(&loss)?;
        optimizer.step()?;
    }
    // ANCHOR_END: train
    let weight = vs.trainable_variables()[0].double_value(&[0, 0]);
    println!("{name}  {} steps with {samples:?}, weight {weight:.7}", samples.len() / 2);
    Ok(())
}
