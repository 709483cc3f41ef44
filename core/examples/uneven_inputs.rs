//! Ranks with different numbers of batches: within `join` no rank waits for those that have finished.
//! Every rank trains with three more batches of digits than the rank before it, and saves its
//! losses and weights in a directory; they equal Python's to the last bit. With `sharded`, the join
//! also covers a sharded optimizer and a counter, this program's own joinable.
//!
//! ```text
//! cargo launch -n 2 -- cargo run -rq -p tch-parallel --example uneven_inputs -- '{"divide_by_initial_world_size": false}' .
//! cargo launch -n 2 -- cargo run -rq -p tch-parallel --example uneven_inputs -- '{}' . sharded
//! ```

use anyhow::{Context, Result};
use serde_json::Value;
use std::{env, path::PathBuf};
use tch::{Device, Tensor, nn, nn::VarStore};
use tch_parallel::data::{Dataset, Mnist, Split};
use tch_parallel::distributed::{
    DistributedDataParallel, JoinConfig, JoinOptions, Joinable, ProcessGroup, ReduceOp, join,
};
use tch_parallel::nn::{LinearOptions, linear};
use tch_parallel::optim::{Optimizer, Sgd, SgdOptions, ZeroRedundancyOptimizer};

const BATCH_SIZE: usize = 64;

fn main() -> Result<()> {
    let mut arguments = env::args().skip(1);
    let given = arguments.next().context("the options of `join` are missing")?;
    // Python's keyword arguments of `model.join`.
    let given: Value = serde_json::from_str(&given)?;
    let (divides, default) = (&given["divide_by_initial_world_size"], JoinOptions::default());
    let divide_by_initial_world_size =
        divides.as_bool().unwrap_or(default.divide_by_initial_world_size);
    let options = JoinOptions { divide_by_initial_world_size, ..default };
    let directory = PathBuf::from(arguments.next().context("the directory is missing")?);
    let sharded = arguments.next().is_some_and(|argument| argument == "sharded");
    let group = ProcessGroup::from_env()?;
    let device = group.device();

    tch::manual_seed(0);
    let vs = VarStore::new(device);
    let mlp = nn::seq()
        .add_fn(|images| images.flat_view())
        .add(linear(vs.root() / "0", 28 * 28, 32, LinearOptions::default()))
        .add_fn(|x| x.relu())
        .add(linear(vs.root() / "2", 32, 10, LinearOptions::default()));
    let model = DistributedDataParallel::new(mlp, &vs, &group)?;
    let mut optimizer = Sgd::new(&vs, SgdOptions { lr: 0.1, momentum: 0.9, ..Default::default() })?;

    let digits = Mnist::embedded(Split::Train)?;
    let steps = 4 + 3 * group.rank();
    let mut losses = Vec::new();
    // ANCHOR: train
    let mut train = |optimizer: &mut dyn Optimizer, step: usize| -> Result<()> {
        let first = (step * group.world_size() + group.rank()) * BATCH_SIZE;
        let indices: Vec<_> = (first..first + BATCH_SIZE).collect();
        let (images, labels) = digits.batch(&indices, 0)?;

        let logits = model.f_forward_t(&images.to(device), true)?;
        let loss = logits.cross_entropy_for_logits(&labels.to(device));
        optimizer.zero_grad()?;
        model.backward(&loss)?;
        optimizer.step()?;
        losses.push(f32::try_from(&loss)?);
        Ok(())
    };
    // ANCHOR_END: train
    let mut counter = Counter { group: group.clone(), config: Default::default(), samples: 0 };
    if sharded {
        // ANCHOR: sharded
        let mut optimizer = ZeroRedundancyOptimizer::new(optimizer, &group);
        let joinables = (&model, &mut optimizer, &mut counter);
        join(joinables, options, |(_, optimizer, counter)| {
            (0..steps).try_for_each(|step| -> Result<()> {
                train(*optimizer, step)?;
                counter.notify_join_context()?;
                Ok(counter.add(BATCH_SIZE as i64)?)
            })
        })?;
        // ANCHOR_END: sharded
    } else {
        // ANCHOR: join
        model.join(options, || (0..steps).try_for_each(|step| train(&mut optimizer, step)))?;
        // ANCHOR_END: join
    }

    let mut saved: Vec<_> = vs.variables().into_iter().collect();
    saved.push(("losses".into(), Tensor::from_slice(&losses)));
    saved.push(("samples".into(), Tensor::from(counter.samples)));
    saved.iter_mut().for_each(|(_, tensor)| *tensor = tensor.to(Device::Cpu));
    let file = format!("rank{}.safetensors", group.rank());
    Ok(Tensor::write_safetensors(&saved, directory.join(file))?)
}

// ANCHOR: counter
/// Counts the samples of all ranks.
struct Counter {
    group: ProcessGroup,
    config: JoinConfig,
    samples: i64,
}

impl Counter {
    fn add(&mut self, samples: i64) -> tch_parallel::Result<()> {
        let mut sum = Tensor::from_slice(&[samples]).to(self.group.exchange_device());
        self.group.all_reduce(&mut sum, ReduceOp::Sum)?;
        self.samples += sum.int64_value(&[0]);
        Ok(())
    }
}

impl Joinable for Counter {
    fn join_process_group(&self) -> &ProcessGroup {
        &self.group
    }

    fn join_config(&self) -> &JoinConfig {
        &self.config
    }

    fn main_hook(&mut self) -> tch_parallel::Result<()> {
        self.add(0)
    }
}
// ANCHOR_END: counter
