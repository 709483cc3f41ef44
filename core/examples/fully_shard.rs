//! The memory of a rank with DistributedDataParallel and with a sharded model, and what the ranks of
//! the latter exchange in a step.
//!
//! ```text
//! cargo launch -n 2 -- cargo run -rq -p tch-parallel --example fully_shard
//! ```

use anyhow::{Context, Result};
use report::{exit, say, size};
use serde_json::Value;
use std::fs;
use tch::nn::{Linear, ModuleT, Path, SequentialT, VarStore, seq_t};
use tch::{Kind, Tensor};
use tch_parallel::distributed::{
    DeviceChoice, DistributedDataParallel, FullyShard, FullyShardOptions, ProcessGroup,
    ProcessGroupOptions, init_process_group,
};
use tch_parallel::memory::{max_memory_allocated, memory_allocated, reset_peak_memory_stats};
use tch_parallel::nn::{LinearOptions, linear};
use tch_parallel::optim::{Adam, AdamOptions, Optimizer};
use tch_parallel::{LogicalDevice, profiler::profile};
use tempfile::NamedTempFile;

const BLOCKS: usize = 8;
const WIDTH: i64 = 256;

fn main() {
    exit(run)
}

fn run() -> Result<()> {
    let options = ProcessGroupOptions { device: DeviceChoice::Cpu, ..Default::default() };
    let group = init_process_group(options)?;

    tch::manual_seed(0);
    // ANCHOR: whole
    let vs = VarStore::new(group.device());
    let stem = seq_t().add(layer(vs.root() / "stem", WIDTH, WIDTH));
    let model = (0..BLOCKS).fold(stem, |model, i| model.add(block(&(vs.root() / i))));
    let whole = DistributedDataParallel::new(model, &vs, &group)?;
    // ANCHOR_END: whole
    let expected =
        train(&group, &vs, "DistributedDataParallel", &whole, |loss| whole.backward(loss))?;
    drop((whole, vs));

    tch::manual_seed(0);
    // ANCHOR: shard
    let vs = VarStore::new(group.device());
    let sharding = FullyShard::new(&vs, &group, FullyShardOptions::default());
    let model = sharding.root(|root| {
        let stem = seq_t().add(layer(root / "stem", WIDTH, WIDTH));
        (0..BLOCKS).fold(stem, |model, i| model.add(sharding.shard(root / i, block)))
    })?;
    // ANCHOR_END: shard
    let loss = train(&group, &vs, "FullyShard", &model, |loss| model.backward(loss))?;
    let trace = NamedTempFile::new()?;
    profile(trace.path(), || model.backward(&loss_of(&model, &group, 3)))??;
    let collectives = collectives(&fs::read_to_string(trace.path())?)?;
    let compared = if loss == expected { "equal to the bit" } else { "different" };
    say(&group, format!("the losses are {compared}"));
    say(&group, format!("a step: {}", collectives.join(", ")));
    Ok(())
}

/// Two linear layers with a hidden layer four times as wide.
fn block(path: &Path<'_>) -> SequentialT {
    let up = layer(path / "up", WIDTH, 4 * WIDTH);
    seq_t().add(up).add_fn(|xs| xs.gelu("none")).add(layer(path / "down", 4 * WIDTH, WIDTH))
}

fn layer(path: Path<'_>, from: i64, to: i64) -> Linear {
    linear(path, from, to, LinearOptions::default())
}

/// The loss of this rank's sample, which differs in each step.
fn loss_of(model: &impl ModuleT, group: &ProcessGroup, step: i64) -> Tensor {
    let numbers = Tensor::arange(WIDTH, (Kind::Float, group.device()));
    let image = (numbers * 0.1 + (2 * step + group.rank() as i64)).sin().view([1, WIDTH]);
    model.forward_t(&image, true).square().mean(Kind::Float)
}

/// The all-gathers (AG) and reduce-scatters (RS) in the profiler's trace, in order.
fn collectives(trace: &str) -> Result<Vec<String>> {
    const RANGES: [(&str, &str); 2] =
        [("FSDP::all_gather", "AG"), ("FSDP::post_backward_reduce", "RS")];
    let trace: Value = serde_json::from_str(trace)?;
    let mut found = Vec::new();
    for event in trace["traceEvents"].as_array().context("a trace without events")? {
        let name = event["name"].as_str().unwrap_or_default();
        let range =
            RANGES.into_iter().find_map(|(range, word)| Some((name.strip_prefix(range)?, word)));
        if let (Some((unit, word)), Some(begin)) = (range, event["ts"].as_f64()) {
            let unit = unit.trim_matches([' ', '(', ')']);
            found.push((begin, format!("{word} {}", if unit.is_empty() { "root" } else { unit })));
        }
    }
    found.sort_by(|(one, _), (other, _)| one.total_cmp(other));
    Ok(found.into_iter().map(|(_, words)| words).collect())
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
        let loss = loss_of(model, group, step);
        optimizer.zero_grad()?;
        backward(&loss)?;
        optimizer.step()?;
        last = loss.double_value(&[]);
    }
    let [rest, peak] = [memory_allocated(device)?, max_memory_allocated(device)?].map(size);
    say(group, format!("{name}: {rest} between steps, at most {peak}"));
    Ok(last)
}
