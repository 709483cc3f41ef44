//! What a reader may write first. Each has one mistake, and every check must find it.

use crate::right;
use exercises::{e18_shared_state::State, e19_sharded_step::layer, prelude::*};
use std::path::Path;

/// Rank 1 goes on where rank 0 ends.
pub fn indices(order: &[i64], rank: usize, world_size: usize) -> Vec<i64> {
    let part = order.len().div_ceil(world_size);
    order.iter().copied().cycle().skip(rank * part).take(part).collect()
}

/// The mean of means.
pub fn mean_loss(group: &ProcessGroup, losses: &[f64]) -> Result<f64> {
    right::mean_loss(group, &[losses.iter().sum::<f64>() / losses.len() as f64])
}

/// Without the buffers.
pub fn same_start(group: &ProcessGroup, vs: &VarStore) -> Result<()> {
    let broadcast = |it: Tensor| Ok(group.broadcast(&mut it.detach(), 0)?);
    vs.trainable_variables().into_iter().try_for_each(broadcast)
}

/// No exchange at all.
pub fn average_gradients(_group: &ProcessGroup, _parameters: &[Tensor]) -> Result<()> {
    Ok(())
}

/// Of one rank's batch.
pub fn learning_rate(base: f64, batch: usize, _: usize, step: usize, warmup: usize) -> f64 {
    right::learning_rate(base, batch, 1, step, warmup)
}

/// The weights without the momentum.
pub fn resume(_group: &ProcessGroup, training: &mut Training<'_>, path: &Path) -> Result<u64> {
    if !path.exists() {
        return Ok(0);
    }
    checkpoint::load(path, training.vs)?;
    Ok(3)
}

/// Whole tensors go around, and each rank adds them in another order.
pub fn ring(group: &ProcessGroup, tensor: &Tensor) -> Result<()> {
    let (rank, ranks) = (group.rank(), group.world_size());
    let (mut sum, mut passing) = (tensor.shallow_clone(), tensor.copy());
    for _ in 1..ranks {
        let sent = group.isend(passing.copy(), (rank + 1) % ranks)?;
        group.recv(&mut passing, (rank + ranks - 1) % ranks)?;
        let _ = sent.wait()?;
        sum += &passing;
    }
    Ok(())
}

/// From the first parameter on.
pub fn buckets(bytes: &[usize], capacity: usize) -> Vec<Vec<usize>> {
    let mut buckets = right::buckets(bytes, capacity);
    buckets.iter_mut().flatten().for_each(|number| *number = bytes.len() - 1 - *number);
    buckets
}

/// With an exchange for each batch.
pub fn accumulate(model: &Ddp, batches: &[Tensor]) -> Result<()> {
    for batch in batches {
        let loss = model.forward(|weight| product(weight, batch))?;
        model.backward(&(loss / batches.len() as f64))?;
    }
    Ok(())
}

/// On this rank.
pub fn unused(_group: &ProcessGroup, parameters: &[(&str, Tensor)]) -> Result<Vec<String>> {
    let unused = parameters.iter().filter(|(_, parameter)| !parameter.grad().defined());
    Ok(unused.map(|(name, _)| (*name).to_owned()).collect())
}

/// Rounded, but exchanged in 32 bits.
pub fn bf16(group: &ProcessGroup, bucket: &mut GradBucket<'_>) -> tch_parallel::Result<Finish> {
    let mean = bucket.buffer()?.to_kind(Kind::BFloat16).to_kind(Kind::Float) / 2;
    let pending = group.all_reduce_async(mean, ReduceOp::Sum)?;
    Ok(Box::new(move || pending.wait()))
}

/// What is not sent is lost.
pub fn top_k(group: &ProcessGroup, gradient: &Tensor, rest: &mut Tensor, k: i64) -> Result<Tensor> {
    let mean = right::top_k(group, gradient, rest, k);
    let _ = rest.zero_();
    mean
}

/// Some batches are left out.
pub fn uneven_inputs(model: &Ddp, optimizer: &mut Sgd, batches: &[Tensor]) -> Result<usize> {
    right::uneven_inputs(model, optimizer, &batches[..1])
}

/// The mean of means, and of variances.
pub fn batch_statistics(group: &ProcessGroup, rows: &Tensor) -> Result<(Tensor, Tensor)> {
    let (mean, variance) = (rows.mean_dim(0, false, None), rows.var_dim(0, false, false));
    let both = functional::all_reduce(&Tensor::stack(&[mean, variance], 0), ReduceOp::Sum, group)?;
    Ok((both.get(0) / 2, both.get(1) / 2))
}

/// The mean of means.
pub fn scattered_mean(batch: &Tensor, devices: i64, loss: &dyn Fn(&Tensor) -> Tensor) -> Tensor {
    let means: Vec<_> = batch.chunk(devices, 0).iter().map(loss).collect();
    Tensor::stack(&means, 0).mean(Kind::Float)
}

/// Every rank updates its own weight.
pub fn push_pull(group: &ProcessGroup, weight: &mut Tensor, gradient: &Tensor) -> Result<()> {
    *weight -= functional::all_reduce(gradient, ReduceOp::Sum, group)? * 0.05;
    Ok(())
}

/// The sums of ranks, added.
pub fn same_bits(group: &ProcessGroup, gradients: &[Tensor]) -> Result<Tensor> {
    let sum = Tensor::stack(gradients, 0).sum_dim_intlist(0, false, None);
    Ok(functional::all_reduce(&sum, ReduceOp::Sum, group)?)
}

/// Every rank has the state of all parameters.
pub fn shared_state(_group: &ProcessGroup, parameters: &[Tensor], state: &mut State) -> Result<()> {
    for (number, parameter) in parameters.iter().enumerate() {
        let momentum = state.entry(number).or_insert_with(|| parameter.zeros_like());
        *momentum = &*momentum * 0.9 + parameter.grad();
        let mut data = parameter.detach();
        data -= &*momentum * 0.1;
    }
    Ok(())
}

/// The whole model on each rank.
pub fn sharded_step(group: &ProcessGroup, vs: &VarStore, input: &Tensor) -> Result<()> {
    let layers = [0, 1, 2].map(|at| layer(&(vs.root() / at)));
    let model = DistributedDataParallel::new(layers, vs, group)?;
    let output =
        model.forward(|layers| layers.iter().fold(input.copy(), |x, it| it.forward(&x)))?;
    Ok(model.backward(&output.mean(Kind::Float))?)
}

/// By the norm of this rank's part.
pub fn clip_shards(_group: &ProcessGroup, shards: &mut [Tensor], max_norm: f64) -> Result<f64> {
    let norm = Tensor::cat(shards, 0).norm().double_value(&[]);
    shards.iter_mut().for_each(|it| *it *= (max_norm / norm).min(1.0));
    Ok(norm)
}

/// The texts of other ranks get no gradient.
pub fn contrastive_loss(group: &ProcessGroup, images: &Tensor, texts: &Tensor) -> Result<Tensor> {
    let mut all = group.all_gather(&texts.detach())?;
    all[group.rank()] = texts.shallow_clone();
    let rows = images.size()[0];
    let labels = Tensor::arange(rows, (Kind::Int64, images.device())) + rows * group.rank() as i64;
    Ok(images.matmul(&Tensor::cat(&all, 0).tr()).cross_entropy_for_logits(&labels))
}
