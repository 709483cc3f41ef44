//! Ranks with different numbers of batches, a sharded optimizer and a counter of this program's
//! own: all three follow the steps of the ranks that still train. Every rank trains with three more
//! batches of digits than the rank before it, and saves its losses, weights and counts in a
//! directory; they equal Python's to the last bit.
//!
//! ```text
//! cargo launch -n 2 -- cargo run -rq -p tch-parallel --example joinables .
//! ```

use anyhow::{Context, Result};
use std::env;
use std::path::PathBuf;
use tch::nn::{self, VarStore};
use tch::{Device, Tensor};
use tch_parallel::data::{Dataset, Mnist, Split};
use tch_parallel::distributed::{
    DistributedDataParallel, JoinConfig, JoinOptions, Joinable, ProcessGroup, ReduceOp, join,
};
use tch_parallel::nn::{LinearOptions, linear};
use tch_parallel::optim::{Adam, AdamOptions, Optimizer, ZeroRedundancyOptimizer};

const BATCH_SIZE: usize = 64;

// ANCHOR: counter
/// What all ranks have trained with.
struct Counter {
    group: ProcessGroup,
    join_config: JoinConfig,
    /// The samples of all ranks.
    samples: i64,
    /// The steps of the rank that makes the most.
    steps: i64,
}

impl Counter {
    fn count(&mut self, samples: usize) -> tch_parallel::Result<()> {
        self.notify_join_context()?;
        self.steps += 1;
        self.add(samples as i64)
    }

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
        &self.join_config
    }

    /// A rank without inputs adds none, and learns what the others add.
    fn main_hook(&mut self) -> tch_parallel::Result<()> {
        self.add(0)
    }

    fn post_hook(&mut self, is_last_joiner: bool) -> tch_parallel::Result<()> {
        let own = if is_last_joiner { self.steps } else { 0 };
        let mut steps = Tensor::from_slice(&[own]).to(self.group.exchange_device());
        self.group.all_reduce(&mut steps, ReduceOp::Max)?;
        self.steps = steps.int64_value(&[0]);
        Ok(())
    }
}
// ANCHOR_END: counter

fn main() -> Result<()> {
    let directory = PathBuf::from(env::args().nth(1).context("the directory is missing")?);
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
    let adam = Adam::new(&vs, AdamOptions { lr: 0.01, ..Default::default() })?;
    let mut optimizer = ZeroRedundancyOptimizer::new(adam, &group);
    let join_config = JoinConfig::default();
    let mut counter = Counter { group: group.clone(), join_config, samples: 0, steps: 0 };

    let digits = Mnist::embedded(Split::Train)?;
    let steps = 4 + 3 * group.rank();
    let options = JoinOptions { divide_by_initial_world_size: false, ..Default::default() };
    let mut losses = Vec::new();
    // ANCHOR: join
    let everything = (&model, &mut optimizer, &mut counter);
    join(everything, options, |(model, optimizer, counter)| -> Result<()> {
        for step in 0..steps {
            let first = (step * group.world_size() + group.rank()) * BATCH_SIZE;
            let indices: Vec<_> = (first..first + BATCH_SIZE).collect();
            let (images, labels) = digits.batch(&indices, 0)?;

            let logits = model.f_forward_t(&images.to(device), true)?;
            let loss = logits.cross_entropy_for_logits(&labels.to(device));
            optimizer.zero_grad()?;
            model.backward(&loss)?;
            optimizer.step()?;
            counter.count(indices.len())?;
            losses.push(f32::try_from(&loss)?);
        }
        Ok(())
    })?;
    // ANCHOR_END: join

    let mut saved: Vec<_> = vs.variables().into_iter().collect();
    saved.push(("losses".into(), Tensor::from_slice(&losses)));
    saved.push(("counts".into(), Tensor::from_slice(&[counter.samples, counter.steps])));
    saved.iter_mut().for_each(|(_, tensor)| *tensor = tensor.to(Device::Cpu));
    let file = format!("rank{}.safetensors", group.rank());
    Tensor::write_safetensors(&saved, directory.join(file))?;
    Ok(())
}
