//! The memory of a rank with DistributedDataParallel and with a sharded model.
//!
//! ```text
//! cargo launch -n 2 -- cargo run -rq -p tch-parallel --example fully_shard
//! ```

use anyhow::Result;
use report::{exit, size};
use tch::nn::{ModuleT, Path, SequentialT, VarStore, seq_t};
use tch::{Kind, Tensor};
use tch_parallel::LogicalDevice;
use tch_parallel::distributed::{
    DeviceChoice, DistributedDataParallel, FullyShard, FullyShardOptions, ProcessGroup,
    ProcessGroupOptions, init_process_group,
};
use tch_parallel::memory::{max_memory_allocated, memory_allocated, reset_peak_memory_stats};
use tch_parallel::nn::{LinearOptions, linear};
use tch_parallel::optim::{Adam, AdamOptions, Optimizer};

const BLOCKS: usize = 8;
const WIDTH: i64 = 256;

fn main() {
    exit(run)
}

fn run() -> Result<()> {
    let options = ProcessGroupOptions { device: DeviceChoice::Cpu, ..Default::default() };
    let group = init_process_group(options)?;

    tch::manual_seed(0);
    let vs = VarStore::new(group.device());
    let whole = (0..BLOCKS).fold(seq_t(), |model, i| model.add(block(&(vs.root() / i))));
    let whole = DistributedDataParallel::new(whole, &vs, &group)?;
    let expected =
        train(&group, &vs, "DistributedDataParallel", &whole, |loss| whole.backward(loss))?;
    drop((whole, vs));

    tch::manual_seed(0);
    // ANCHOR: shard
    let vs = VarStore::new(group.device());
    let sharding = FullyShard::new(&vs, &group, FullyShardOptions::default());
    let model = sharding.root(|root| {
        (0..BLOCKS).fold(seq_t(), |model, i| model.add(sharding.shard(root / i, block)))
    })?;
    // ANCHOR_END: shard
    let loss = train(&group, &vs, "FullyShard", &model, |loss| model.backward(loss))?;
    if group.rank() == 0 {
        println!(
            "the losses are {}",
            if loss == expected { "equal to the bit" } else { "different" }
        );
    }
    Ok(())
}

/// Two linear layers with a hidden layer four times as wide.
fn block(path: &Path<'_>) -> SequentialT {
    let layer = |name, from, to| linear(path / name, from, to, LinearOptions::default());
    seq_t().add(layer("up", WIDTH, 4 * WIDTH)).add_fn(|xs| xs.gelu("none")).add(layer(
        "down",
        4 * WIDTH,
        WIDTH,
    ))
}

/// Takes three steps, prints the memory of rank 0's tensors, and returns the last loss.
fn train(
    group: &ProcessGroup,
    vs: &VarStore,
    name: &str,
    model: &impl ModuleT,
    backward: impl Fn(&Tensor) -> tch_parallel::Result<()>,
) -> Result<f64> {
    let device = LogicalDevice::of(&vs.trainable_variables()[0]);
    let mut optimizer = Adam::new(vs, AdamOptions::adamw())?;
    let mut last = 0.0;
    reset_peak_memory_stats(device)?;
    for step in 0..3 {
        let numbers = Tensor::arange(8 * WIDTH, (Kind::Float, group.device()));
        let images = (numbers * 0.1 + (2 * step + group.rank() as i64)).sin().view([8, WIDTH]);
        let loss = model.forward_t(&images, true).square().mean(Kind::Float);
        optimizer.zero_grad()?;
        backward(&loss)?;
        optimizer.step()?;
        last = loss.double_value(&[]);
    }
    if group.rank() == 0 {
        let [rest, peak] = [memory_allocated(device)?, max_memory_allocated(device)?];
        println!("{name}: {} between steps, at most {}", size(rest), size(peak));
    }
    Ok(last)
}
