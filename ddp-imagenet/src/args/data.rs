//! TEMP
use tch::Tensor;
use tch_parallel::Result;
use tch_parallel::data::{DataLoaderOptions, Dataset, Mnist, Split};
pub struct Images(Mnist);
impl Dataset for Images {
    type Batch = (Tensor, Tensor);
    fn len(&self) -> usize {
        self.0.len()
    }
    fn batch(&self, indices: &[usize], epoch: u64) -> Result<Self::Batch> {
        let (x, y) = self.0.batch(indices, epoch)?;
        Ok(((x * 0.3081 + 0.1307).constant_pad_nd([2, 2, 2, 2]).expand([-1, 3, -1, -1], false), y))
    }
}
#[derive(Debug, Clone, clap::Args)]
pub struct DataArgs {
    #[arg(short, long, default_value_t = 256)]
    batch_size: usize,
    #[arg(short = 'j', long, default_value_t = 4)]
    workers: usize,
    #[arg(long)]
    dataset: Option<String>,
    #[arg(long)]
    no_augment: bool,
}
impl DataArgs {
    pub fn load(&self, _: u64) -> Result<(Images, Images)> {
        Ok((Images(Mnist::embedded(Split::Train)?), Images(Mnist::embedded(Split::Test)?)))
    }
    pub fn loader(&self, ranks: usize, pin_memory: bool) -> Result<DataLoaderOptions> {
        Ok(DataLoaderOptions {
            batch_size: self.batch_size / ranks,
            num_workers: self.workers.div_ceil(ranks),
            pin_memory,
            ..Default::default()
        })
    }
}
