//! The lines of the book's appendix "By task", in a program that runs: each task trains a small
//! network, and at its end all ranks must have the same weights.
//!
//! ```text
//! cargo launch -n 2 -- cargo run -rq -p tch-parallel --example by_task
//! ```

// ANCHOR: names
use anyhow::{Result, ensure};
use serde::{Deserialize, Serialize};
use std::{path::Path, time::Duration};
use tch::nn::{self, ModuleT, OptimizerConfig, VarStore};
use tch::{Kind, Tensor};
use tch_parallel::amp::{GradScaler, GradScalerOptions, autocast};
use tch_parallel::checkpoint::{self, Training};
use tch_parallel::data::{
    DataLoader, Dataset, DistributedSampler, DistributedSamplerWrapper, WeightedRandomSampler,
};
use tch_parallel::distributed::hooks::Bf16Compress;
use tch_parallel::distributed::{
    DdpOptions, DistributedDataParallel, ProcessGroup, ProcessGroupOptions, init_process_group,
};
use tch_parallel::memory::max_memory_allocated;
use tch_parallel::nn::{BatchNormOptions, sync_batch_norm};
use tch_parallel::optim::{
    Adam, AdamOptions, AveragedModel, AveragedModelOptions, Averaging, Optimizer, Sgd, SgdOptions,
    ZeroRedundancyOptimizer, clip_grad_norm_,
};
use tch_parallel::profiler::profile;
use tch_parallel::{LogicalDevice, Result as EngineResult};
// ANCHOR_END: names

type Model = DistributedDataParallel<nn::SequentialT>;

/// Trains, and gives the weights that it has come to.
type Task = fn(&ProcessGroup) -> Result<VarStore>;

fn main() -> Result<()> {
    // ANCHOR: timeout
    let timeout = Some(Duration::from_secs(60));
    let group = init_process_group(ProcessGroupOptions { timeout, ..Default::default() })?;
    // On rank 0 its error names the ranks that are missing.
    group.with_timeout(Duration::from_secs(10)).monitored_barrier(true)?;
    // ANCHOR_END: timeout

    // ANCHOR: seed
    tch::manual_seed(42 + group.rank() as i64);
    // ANCHOR_END: seed
    let tasks: [(&str, Task); 11] = [
        ("own data", own_data),
        ("few of one kind", few_of_one_kind),
        ("tch's optimizer", tch_optimizer),
        ("averaged weights", averaged_weights),
        ("options and a hook", options_and_hook),
        ("mixed precision", mixed_precision),
        ("scaled gradients", scaled_gradients),
        ("batch norm over all ranks", batch_norm_over_ranks),
        ("the optimizer's state shared out", optimizer_state_shared_out),
        ("a checkpoint", checkpoint),
        ("measured", measured),
    ];
    for (name, task) in tasks {
        let vs = task(&group)?;
        ensure!(same_on_all_ranks(&group, &vs)?, "{name}: the ranks have different weights");
        report::say(&group, format!("{name}: all ranks have the same weights"));
    }
    Ok(())
}

// ANCHOR: dataset
/// Points, and whether they lie inside a circle.
struct Points(Vec<[f32; 2]>);

impl Dataset for Points {
    type Batch = (Tensor, Tensor);

    fn len(&self) -> usize {
        self.0.len()
    }

    fn batch(&self, indices: &[usize], _epoch: u64) -> EngineResult<(Tensor, Tensor)> {
        let points: Vec<_> = indices.iter().map(|&index| self.0[index]).collect();
        let inside = points.iter().map(|[x, y]| i64::from(x.hypot(*y) < 0.7));
        Ok((Tensor::from_slice2(&points), Tensor::from_slice(&inside.collect::<Vec<_>>())))
    }
}

/// On a grid.
fn points() -> Points {
    let at = |index: usize| (index as f32 - 7.5) / 8.0;
    Points((0..256).map(|index| [at(index % 16), at(index / 16)]).collect())
}
// ANCHOR_END: dataset

fn network(vs: &VarStore) -> nn::SequentialT {
    nn::seq_t()
        .add(nn::linear(vs.root() / "hidden", 2, 32, Default::default()))
        .add_fn(Tensor::tanh)
        .add(nn::linear(vs.root() / "output", 32, 2, Default::default()))
}

fn wrapped(group: &ProcessGroup) -> Result<(VarStore, Model, Sgd)> {
    let vs = VarStore::new(group.device());
    let model = DistributedDataParallel::new(network(&vs), &vs, group)?;
    let optimizer = sgd(&vs)?;
    Ok((vs, model, optimizer))
}

fn sgd(vs: &VarStore) -> Result<Sgd> {
    Ok(Sgd::new(vs, SgdOptions { lr: 0.5, ..Default::default() })?)
}

/// The whole of this rank's share.
fn batch(group: &ProcessGroup) -> Result<(Tensor, Tensor)> {
    let share: Vec<_> = (0..256).skip(group.rank()).step_by(group.world_size()).collect();
    let (inputs, labels) = points().batch(&share, 0)?;
    Ok((inputs.to(group.device()), labels.to(group.device())))
}

fn own_data(group: &ProcessGroup) -> Result<VarStore> {
    let (vs, model, mut optimizer) = wrapped(group)?;
    // ANCHOR: loader
    let loader = DataLoader::new(points(), DistributedSampler::new(group, 42), 64)?;
    for epoch in 0..2 {
        for batch in loader.epoch(epoch)?.to(group.device()) {
            let (inputs, labels) = batch?;
            let loss = model.f_forward_t(&inputs, true)?.cross_entropy_for_logits(&labels);
            optimizer.zero_grad()?;
            model.backward(&loss)?;
            optimizer.step()?;
        }
    }
    // ANCHOR_END: loader
    Ok(vs)
}

fn few_of_one_kind(group: &ProcessGroup) -> Result<VarStore> {
    let (vs, model, mut optimizer) = wrapped(group)?;
    // ANCHOR: weighted
    let points = points();
    let is_inside = |[x, y]: &[f32; 2]| x.hypot(*y) < 0.7;
    let weights: Vec<_> =
        points.0.iter().map(|point| if is_inside(point) { 2.0 } else { 1.0 }).collect();
    let sampler = WeightedRandomSampler::new(weights, points.len(), 42);
    let loader = DataLoader::new(points, DistributedSamplerWrapper::new(sampler, group), 64)?;
    // ANCHOR_END: weighted
    for batch in loader.epoch(0)?.to(group.device()) {
        let (inputs, labels) = batch?;
        let loss = model.f_forward_t(&inputs, true)?.cross_entropy_for_logits(&labels);
        optimizer.zero_grad()?;
        // ANCHOR: clip
        model.backward(&loss)?;
        clip_grad_norm_(&model.parameters(), 1.0)?;
        optimizer.step()?;
        // ANCHOR_END: clip
    }
    Ok(vs)
}

fn tch_optimizer(group: &ProcessGroup) -> Result<VarStore> {
    let (vs, model, _) = wrapped(group)?;
    let (inputs, labels) = batch(group)?;
    // ANCHOR: tch_optimizer
    let mut optimizer = nn::Sgd::default().build(&vs, 0.5)?;
    let loss = model.forward_t(&inputs, true).cross_entropy_for_logits(&labels);
    optimizer.backward_step(&loss);
    // ANCHOR_END: tch_optimizer
    Ok(vs)
}

fn averaged_weights(group: &ProcessGroup) -> Result<VarStore> {
    let (vs, model, mut optimizer) = wrapped(group)?;
    let (inputs, labels) = batch(group)?;
    // ANCHOR: averaged
    let averaged_vs = VarStore::new(group.device());
    let averaged = network(&averaged_vs);
    let averaging = Averaging::Ema { decay: 0.9 };
    let options = AveragedModelOptions { averaging, ..Default::default() };
    let mut ema = AveragedModel::new(&averaged_vs, &vs, options)?;
    for _step in 0..3 {
        optimizer.zero_grad()?;
        model.backward(&model.forward_t(&inputs, true).cross_entropy_for_logits(&labels))?;
        optimizer.step()?;
        ema.update_parameters()?;
    }
    let predictions = averaged.forward_t(&inputs, false).argmax(1, false);
    // ANCHOR_END: averaged
    ensure!(predictions.size() == labels.size(), "predictions are {:?}", predictions.size());
    Ok(averaged_vs)
}

fn options_and_hook(group: &ProcessGroup) -> Result<VarStore> {
    let vs = VarStore::new(group.device());
    let network = network(&vs);
    // ANCHOR: options
    let options = DdpOptions {
        find_unused_parameters: true,  // a parameter may be without a gradient
        gradient_as_bucket_view: true, // gradients do not lie in memory twice
        ..Default::default()
    };
    // ANCHOR_END: options
    // ANCHOR: hook
    let options = DdpOptions { comm_hook: Some(Box::new(Bf16Compress)), ..options };
    let model = DistributedDataParallel::with_options(network, &vs, group, options)?;
    // ANCHOR_END: hook
    let (inputs, labels) = batch(group)?;
    let mut optimizer = sgd(&vs)?;
    model.backward(&model.f_forward_t(&inputs, true)?.cross_entropy_for_logits(&labels))?;
    optimizer.step()?;
    Ok(vs)
}

fn mixed_precision(group: &ProcessGroup) -> Result<VarStore> {
    let (vs, model, mut optimizer) = wrapped(group)?;
    let (inputs, labels) = batch(group)?;
    // ANCHOR: autocast
    let loss = autocast(group.device(), Some(Kind::BFloat16), || {
        model.forward_t(&inputs, true).cross_entropy_for_logits(&labels)
    })?;
    // ANCHOR_END: autocast
    model.backward(&loss)?;
    optimizer.step()?;
    Ok(vs)
}

fn scaled_gradients(group: &ProcessGroup) -> Result<VarStore> {
    let (vs, model, mut optimizer) = wrapped(group)?;
    let (inputs, labels) = batch(group)?;
    // ANCHOR: grad_scaler
    let mut scaler = GradScaler::new(GradScalerOptions::default())?;
    for _step in 0..2 {
        let loss = autocast(group.device(), Some(Kind::Half), || {
            model.forward_t(&inputs, true).cross_entropy_for_logits(&labels)
        })?;
        optimizer.zero_grad()?;
        model.backward(&scaler.scale(&loss)?)?;
        scaler.step(&mut optimizer)?; // left out if a gradient is infinite
        scaler.update()?;
    }
    // ANCHOR_END: grad_scaler
    Ok(vs)
}

fn batch_norm_over_ranks(group: &ProcessGroup) -> Result<VarStore> {
    let vs = VarStore::new(group.device());
    // ANCHOR: sync_batch_norm
    let p = vs.root();
    let network = nn::seq_t()
        .add(nn::conv2d(&p / "conv", 1, 4, 3, Default::default()))
        .add(sync_batch_norm(&p / "norm", 4, group, BatchNormOptions::default()));
    // ANCHOR_END: sync_batch_norm
    let model = DistributedDataParallel::new(network, &vs, group)?;
    let mut optimizer = sgd(&vs)?;
    let images = Tensor::rand([2, 1, 8, 8], (Kind::Float, group.device()));
    model.backward(&model.f_forward_t(&images, true)?.relu().mean(Kind::Float))?;
    optimizer.step()?;
    Ok(vs)
}

fn optimizer_state_shared_out(group: &ProcessGroup) -> Result<VarStore> {
    let (vs, model, _) = wrapped(group)?;
    let (inputs, labels) = batch(group)?;
    // ANCHOR: zero
    let adamw = Adam::new(&vs, AdamOptions::adamw())?;
    let mut optimizer = ZeroRedundancyOptimizer::new(adamw, group);
    // ANCHOR_END: zero
    model.backward(&model.f_forward_t(&inputs, true)?.cross_entropy_for_logits(&labels))?;
    optimizer.step()?;
    Ok(vs)
}

// ANCHOR: progress
/// What the program itself must know to go on.
#[derive(Serialize, Deserialize)]
struct Progress {
    epoch: u64,
}
// ANCHOR_END: progress

fn checkpoint(group: &ProcessGroup) -> Result<VarStore> {
    let mut vs = VarStore::new(group.device());
    let network = network(&vs);
    let mut optimizer = Adam::new(&vs, AdamOptions { lr: 0.01, ..AdamOptions::adamw() })?;
    let model = DistributedDataParallel::new(network, &vs, group)?;
    let (inputs, labels) = batch(group)?;
    model.backward(&model.f_forward_t(&inputs, true)?.cross_entropy_for_logits(&labels))?;
    optimizer.step()?;
    // ANCHOR: checkpoint
    let path = Path::new("checkpoint.safetensors");
    let mut training = Training {
        architecture: "circle",
        vs: &mut vs,
        optimizer: &mut optimizer,
        scheduler: None,
        scaler: None,
    };
    training.save(path, &Progress { epoch: 5 }, group)?; // all ranks call it, rank 0 writes
    let resumed = training.load::<Progress>(path, group)?;
    // ANCHOR_END: checkpoint
    ensure!(resumed.progress.epoch == 5, "epoch {} was not saved", resumed.progress.epoch);
    // ANCHOR: weights
    checkpoint::load(path, &mut vs)?;
    // ANCHOR_END: weights
    group.barrier()?;
    if group.rank() == 0 {
        std::fs::remove_file(path)?;
    }
    Ok(vs)
}

fn measured(group: &ProcessGroup) -> Result<VarStore> {
    let (vs, model, mut optimizer) = wrapped(group)?;
    let (inputs, labels) = batch(group)?;
    // ANCHOR: profile
    let mut step = || -> Result<()> {
        optimizer.zero_grad()?;
        model.backward(&model.f_forward_t(&inputs, true)?.cross_entropy_for_logits(&labels))?;
        Ok(optimizer.step()?)
    };
    let trace = format!("rank{}.json", group.rank());
    profile(&trace, || (0..3).try_for_each(|_| step()))??;
    // ANCHOR_END: profile
    std::fs::remove_file(trace)?;
    // ANCHOR: measure
    let data = model.logging_data()?; // buckets, and times of the backward pass and of the exchange
    let (exchange, waiting) = (data.avg_backward_comm_time, data.waiting_time());
    let peak = max_memory_allocated(LogicalDevice::of(&inputs))?; // bytes on this rank's device
    // ANCHOR_END: measure
    ensure!(exchange >= waiting && peak > 0, "{exchange:?}, {waiting:?} and {peak} bytes");
    Ok(vs)
}

fn same_on_all_ranks(group: &ProcessGroup, vs: &VarStore) -> Result<bool> {
    let weights: Vec<_> =
        vs.trainable_variables().iter().map(|w| w.detach().flatten(0, -1)).collect();
    let weights = group.all_gather(&Tensor::cat(&weights, 0))?;
    Ok(weights.iter().all(|of_a_rank| *of_a_rank == weights[0]))
}
