//! A solution of each exercise. Try it yourself first.

use exercises::{e18_shared_state::State, e19_sharded_step::layer, prelude::*};
use std::path::Path;

pub fn indices(order: &[i64], rank: usize, world_size: usize) -> Vec<i64> {
    let padded = order.len().next_multiple_of(world_size);
    order.iter().copied().cycle().take(padded).skip(rank).step_by(world_size).collect()
}

pub fn mean_loss(group: &ProcessGroup, losses: &[f64]) -> Result<f64> {
    let mut both = Tensor::from_slice(&[losses.iter().sum(), losses.len() as f64]);
    group.all_reduce(&mut both, ReduceOp::Sum)?;
    Ok(both.double_value(&[0]) / both.double_value(&[1]))
}

pub fn same_start(group: &ProcessGroup, vs: &VarStore) -> Result<()> {
    let sorted: BTreeMap<_, _> = vs.variables().into_iter().collect();
    for variable in sorted.values() {
        group.broadcast(&mut variable.detach(), 0)?;
    }
    Ok(())
}

pub fn average_gradients(group: &ProcessGroup, parameters: &[Tensor]) -> Result<()> {
    for parameter in parameters {
        let mut gradient = parameter.grad();
        group.all_reduce(&mut gradient, ReduceOp::Sum)?;
        gradient /= group.world_size() as f64;
    }
    Ok(())
}

pub fn learning_rate(base: f64, batch: usize, ranks: usize, step: usize, warmup: usize) -> f64 {
    let scaled = base * (batch * ranks) as f64 / 256.0;
    base + (scaled - base) * (step as f64 / warmup as f64).min(1.0)
}

pub fn resume(group: &ProcessGroup, training: &mut Training<'_>, path: &Path) -> Result<u64> {
    if path.exists() { Ok(training.load(path, group)?.progress) } else { Ok(0) }
}

pub fn ring(group: &ProcessGroup, tensor: &Tensor) -> Result<()> {
    let (rank, ranks) = (group.rank(), group.world_size());
    let mut chunks = tensor.chunk(ranks as i64, 0);
    for round in 0..2 * (ranks - 1) {
        let own = (rank + 2 * ranks - round) % ranks;
        let arriving = (own + ranks - 1) % ranks;
        let sent = group.isend(chunks[own].copy(), (rank + 1) % ranks)?;
        let mut received = chunks[arriving].zeros_like();
        group.recv(&mut received, (rank + ranks - 1) % ranks)?;
        let _ = sent.wait()?;
        match round < ranks - 1 {
            true => chunks[arriving] += received,
            false => chunks[arriving].copy_(&received),
        }
    }
    Ok(())
}

pub fn buckets(bytes: &[usize], capacity: usize) -> Vec<Vec<usize>> {
    let mut buckets: Vec<Vec<usize>> = Vec::new();
    let mut size = capacity;
    for (number, bytes) in bytes.iter().enumerate().rev() {
        if size >= capacity {
            buckets.push(Vec::new());
            size = 0;
        }
        size += bytes;
        buckets.last_mut().into_iter().for_each(|last| last.push(number));
    }
    buckets
}

pub fn accumulate(model: &Ddp, batches: &[Tensor]) -> Result<()> {
    for (number, batch) in batches.iter().enumerate() {
        let _guard = (number + 1 < batches.len()).then(|| model.no_sync());
        let loss = model.forward(|weight| product(weight, batch))?;
        model.backward(&(loss / batches.len() as f64))?;
    }
    Ok(())
}

pub fn unused(group: &ProcessGroup, parameters: &[(&str, Tensor)]) -> Result<Vec<String>> {
    let used: Vec<_> = parameters.iter().map(|it| i64::from(it.1.grad().defined())).collect();
    let mut used = Tensor::from_slice(&used);
    group.all_reduce(&mut used, ReduceOp::Max)?;
    let used = Vec::<i64>::try_from(used)?;
    let unused = parameters.iter().zip(used).filter(|(_, used)| *used == 0);
    Ok(unused.map(|((name, _), _)| (*name).to_owned()).collect())
}

pub fn bf16(group: &ProcessGroup, bucket: &mut GradBucket<'_>) -> tch_parallel::Result<Finish> {
    let mean = bucket.buffer()?.to_kind(Kind::BFloat16) / group.world_size() as f64;
    let pending = group.all_reduce_async(mean, ReduceOp::Sum)?;
    Ok(Box::new(move || Ok(pending.wait()?.to_kind(Kind::Float))))
}

pub fn top_k(group: &ProcessGroup, gradient: &Tensor, rest: &mut Tensor, k: i64) -> Result<Tensor> {
    let corrected = gradient + &*rest;
    let (_, places) = corrected.abs().topk(k, 0, true, false);
    let values = corrected.gather(0, &places, false);
    *rest = corrected.scatter_value(0, &places, 0.0);
    let mut sum = gradient.zeros_like();
    for (places, values) in group.all_gather(&places)?.iter().zip(group.all_gather(&values)?) {
        sum = sum.scatter_add(0, places, &values);
    }
    Ok(sum / group.world_size() as f64)
}

pub fn uneven_inputs(model: &Ddp, optimizer: &mut Sgd, batches: &[Tensor]) -> Result<usize> {
    model.join(JoinOptions::default(), || {
        for batch in batches {
            optimizer.zero_grad()?;
            model.backward(&model.forward(|weight| product(weight, batch))?)?;
            optimizer.step()?;
        }
        Ok(batches.len())
    })
}

pub fn batch_statistics(group: &ProcessGroup, rows: &Tensor) -> Result<(Tensor, Tensor)> {
    let count = rows.ones_like();
    let mut sums =
        Tensor::stack(&[rows, &rows.square(), &count], 0).sum_dim_intlist(1, false, None);
    group.all_reduce(&mut sums, ReduceOp::Sum)?;
    let mean = sums.get(0) / sums.get(2);
    let variance = sums.get(1) / sums.get(2) - mean.square();
    Ok((mean, variance))
}

pub fn scattered_mean(batch: &Tensor, devices: i64, loss: &dyn Fn(&Tensor) -> Tensor) -> Tensor {
    let chunks = batch.chunk(devices, 0);
    let sums: Vec<_> = chunks.iter().map(|rows| loss(rows) * rows.size()[0]).collect();
    Tensor::stack(&sums, 0).sum(Kind::Float) / batch.size()[0]
}

pub fn push_pull(group: &ProcessGroup, weight: &mut Tensor, gradient: &Tensor) -> Result<()> {
    if let Some(gradients) = group.gather(gradient, 0)? {
        *weight -= Tensor::stack(&gradients, 0).mean_dim(0, false, None) * 0.1;
    }
    Ok(group.broadcast(weight, 0)?)
}

pub fn same_bits(group: &ProcessGroup, gradients: &[Tensor]) -> Result<Tensor> {
    let of_ranks = group.all_gather(&Tensor::stack(gradients, 0))?;
    let all = Tensor::stack(&of_ranks, 1).flatten(0, 1);
    let mut sum = all.get(0);
    for number in 1..all.size()[0] {
        sum += all.get(number);
    }
    Ok(sum)
}

pub fn shared_state(group: &ProcessGroup, parameters: &[Tensor], state: &mut State) -> Result<()> {
    for (number, parameter) in parameters.iter().enumerate() {
        let owner = number % group.world_size();
        let mut parameter_data = parameter.detach();
        if owner == group.rank() {
            let momentum = state.entry(number).or_insert_with(|| parameter_data.zeros_like());
            *momentum = &*momentum * 0.9 + parameter.grad();
            parameter_data -= &*momentum * 0.1;
        }
        group.broadcast(&mut parameter_data, owner)?;
    }
    Ok(())
}

pub fn sharded_step(group: &ProcessGroup, vs: &VarStore, input: &Tensor) -> Result<()> {
    let sharding = FullyShard::new(vs, group, Default::default());
    let model = sharding.root(|root| [0, 1, 2].map(|at| sharding.shard(root / at, layer)))?;
    let output = model.forward(input.shallow_clone(), |blocks, input| {
        blocks.iter().fold(input, |x, block| block.call(x, |layer, x| layer.forward(&x)))
    })?;
    Ok(model.backward(&output.mean(Kind::Float))?)
}

pub fn clip_shards(group: &ProcessGroup, shards: &mut [Tensor], max_norm: f64) -> Result<f64> {
    let squares: Vec<_> = shards.iter().map(|it| it.square().sum(Kind::Double)).collect();
    let mut sum = Tensor::stack(&squares, 0).sum(Kind::Double);
    group.all_reduce(&mut sum, ReduceOp::Sum)?;
    let norm = sum.sqrt().double_value(&[]);
    shards.iter_mut().for_each(|it| *it *= (max_norm / norm).min(1.0));
    Ok(norm)
}

pub fn contrastive_loss(group: &ProcessGroup, images: &Tensor, texts: &Tensor) -> Result<Tensor> {
    let all = Tensor::cat(&functional::all_gather(texts, group)?, 0);
    let rows = images.size()[0];
    let labels = Tensor::arange(rows, (Kind::Int64, images.device())) + rows * group.rank() as i64;
    Ok(images.matmul(&all.tr()).cross_entropy_for_logits(&labels))
}
