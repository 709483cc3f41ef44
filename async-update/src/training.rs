//! A training from its beginning to its outcome: what all methods have in common.

use crate::args::{ServerArgs, TrainArgs};
use crate::events::{Log, Outcome};
use crate::server::{self, Service, Shards};
use crate::{link::Traffic, methods::Method, model};
use anyhow::{Result, ensure};
use report::{println, say_unused_gpus};
use std::{sync::Arc, thread::sleep, time::Instant};
use tch::{Device, Tensor};
use tch_parallel::data::{DataLoader, Dataset, DistributedSampler, Mnist, Shard};
use tch_parallel::distributed::{ProcessGroup, init_process_group};

/// One loop for all methods: what differs is where θ comes from, and where the gradient goes.
// ANCHOR: loop
pub fn train(
    args: &TrainArgs,
    train_set: &Arc<Mnist>,
    worker: Shard,
    device: Device,
    theta: &mut Tensor,
    method: &mut dyn Method,
    log: &mut Log,
) -> Result<()> {
    // All workers shuffle with the same seed, so that they share the samples out.
    let sampler = DistributedSampler::new(worker, 42);
    let loader = DataLoader::new(Arc::clone(train_set), sampler, args.batch_size)?;
    let mut left = args.batches(train_set.len()).div_ceil(worker.num_replicas());
    let mut batches = batches_forever(&loader);
    let pace = args.pace(log.rank);
    while let number @ 1.. = method.next_batches(theta, left)? {
        left = left.saturating_sub(number);
        for batch in batches.by_ref().take(number) {
            let (images, labels) = batch?;
            let begun = Instant::now();
            let (loss, gradient) = model::loss_and_gradient(theta, &images, &labels, device)?;
            ensure!(loss.is_finite(), "the loss is {loss}; try a smaller --lr than {}", args.lr);
            sleep(pace.saturating_sub(begun.elapsed()));
            method.after_batch(theta, gradient)?;
            log.step(loss, theta)?;
        }
    }
    Ok(method.end(theta)?)
}
// ANCHOR_END: loop

/// A worker's share of the data, shuffled anew in every epoch: images `[batch, 1, 28, 28]` and labels `[batch]`. The
/// iterator never ends, since some methods give a fast worker more batches than a slow one.
fn batches_forever(
    loader: &DataLoader<Arc<Mnist>>,
) -> impl Iterator<Item = tch_parallel::Result<(Tensor, Tensor)>> {
    (0..).flat_map(|epoch| match loader.epoch(epoch) {
        Ok(batches) => Box::new(batches) as Box<dyn Iterator<Item = _>>,
        Err(error) => Box::new(std::iter::once(Err(error))),
    })
}

/// Trains with a method in which all ranks are workers, and all hold the same θ in the end.
/// `method` also returns how many updates the steps of all ranks make.
pub fn synchronous<M: Method>(
    name: &str,
    args: &TrainArgs,
    method: impl FnOnce(ProcessGroup, usize) -> Result<(M, usize)>,
) -> Result<()> {
    let (train_set, test_set) = args.data()?;
    let group = init_process_group(args.meeting.process_group())?;
    let (rank, ranks) = (group.rank(), group.world_size());
    args.check_stragglers(0..ranks)?;
    if rank == 0 {
        say_unused_gpus(args.device);
    }
    let device = args.device.of_worker(group.local_rank())?;

    let mut theta = model::initial_parameters(args.seed);
    group.broadcast(&mut theta, 0)?;
    let steps = args.batches(train_set.len()).div_ceil(ranks);
    let (mut method, updates) = method(group.clone(), steps)?;
    let mut log = Log::create(args.metrics.as_deref(), &group)?;
    let begun = Instant::now();
    train(args, &train_set, Shard::from(&group), device, &mut theta, &mut method, &mut log)?;
    let seconds = begun.elapsed().as_secs_f64();
    log.end()?;
    group.barrier()?;
    if rank == 0 {
        let (loss, accuracy) = model::evaluate(&theta, &test_set)?;
        let (name, batches, workers) = (name.to_owned(), steps * ranks, ranks);
        log.outcome(&Outcome { name, workers, updates, batches, seconds, loss, accuracy })?;
        if let Some(traffic) = Traffic::of_this_process() {
            println!("{}", traffic.per_step(rank, steps));
        }
    }
    Ok(())
}

/// Trains with a method in which servers keep θ: the first ranks are servers, with a shard of θ each,
/// all others are workers. Nobody waits for a worker: it may be slow, come late, or be killed.
pub fn asynchronous<M: Method>(
    service: Service<'_>,
    servers: &ServerArgs,
    method: impl FnOnce(Shards) -> M,
) -> Result<()> {
    let (env, args) = (servers.place()?, &servers.train);
    let workers = servers.workers(&env);
    args.check_stragglers(workers.clone())?;
    if env.rank < workers.start {
        return server::serve(service, &env, servers);
    }
    // What can go wrong with these goes wrong before anybody counts on this worker.
    let (train_set, _) = args.data()?;
    if env.rank == workers.start {
        say_unused_gpus(args.device);
    }
    let device = args.device.of_worker(env.local_rank)?;
    let mut log = Log::create(args.metrics.as_deref(), Shard::new(env.rank, env.world_size)?)?;
    let mut method = method(Shards::connect(env.rank, servers)?);
    let mut theta = model::zeros();
    let worker = Shard::new(env.rank - workers.start, workers.len())?;
    train(args, &train_set, worker, device, &mut theta, &mut method, &mut log)?;
    Ok(log.end()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tch_parallel::data::Split;

    #[test]
    fn in_every_epoch_the_workers_share_all_samples_out_anew() {
        let data = Arc::new(Mnist::embedded(Split::Test).unwrap());
        let labels = |rank, epoch| {
            let sampler = DistributedSampler::new(Shard::new(rank, 2).unwrap(), 42);
            let loader = DataLoader::new(Arc::clone(&data), sampler, 250).unwrap();
            let batches = batches_forever(&loader).skip(epoch * loader.len()).take(loader.len());
            Tensor::cat(&batches.map(|batch| batch.unwrap().1).collect::<Vec<_>>(), 0)
        };
        let sorted = |labels: &[Tensor]| Tensor::cat(labels, 0).sort(0, false).0;
        let first = [labels(0, 0), labels(1, 0)];
        let second = [labels(0, 1), labels(1, 1)];
        assert_ne!(first[0], second[0]);
        assert_eq!(sorted(&first), sorted(&second));
    }
}
