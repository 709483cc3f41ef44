//! The batches of one worker, as many as it asks for.

use std::sync::Arc;
use tch::Tensor;
use tch_parallel::Result;
use tch_parallel::data::{DataLoader, Mnist};

/// A worker's share of the data, shuffled anew in every epoch: images `[batch, 1, 28, 28]` and
/// labels `[batch]`. The iterator never ends, since some methods give a fast worker more batches than a
/// slow one.
pub fn forever(loader: &DataLoader<Arc<Mnist>>) -> impl Iterator<Item = Result<(Tensor, Tensor)>> {
    (0..).flat_map(|epoch| match loader.epoch(epoch) {
        Ok(batches) => Box::new(batches) as Box<dyn Iterator<Item = _>>,
        Err(error) => Box::new(std::iter::once(Err(error))),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tch_parallel::data::{DistributedSampler, Shard, Split};

    #[test]
    fn in_every_epoch_the_workers_share_all_samples_out_anew() {
        let data = Arc::new(Mnist::embedded(Split::Test).unwrap());
        let labels = |rank, epoch| {
            let sampler = DistributedSampler::new(Shard::new(rank, 2).unwrap(), 42);
            let loader = DataLoader::new(Arc::clone(&data), sampler, 250).unwrap();
            let batches = forever(&loader).skip(epoch * loader.len()).take(loader.len());
            Tensor::cat(&batches.map(|batch| batch.unwrap().1).collect::<Vec<_>>(), 0)
        };
        let sorted = |labels: &[Tensor]| Tensor::cat(labels, 0).sort(0, false).0;
        let first = [labels(0, 0), labels(1, 0)];
        let second = [labels(0, 1), labels(1, 1)];
        assert_ne!(first[0], second[0]);
        assert_eq!(sorted(&first), sorted(&second));
    }
}
