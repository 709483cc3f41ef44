//! MNIST on several processes: compare with `mnist_single.rs`.
//!
//! ```text
//! cargo launch -n 2 --tee 1 -- cargo run -rq -p tch-parallel --example mnist_ddp
//! ```

use anyhow::Result;
use tch::nn::{self, ModuleT, Path, VarStore};
use tch_parallel::checkpoint;
use tch_parallel::data::{DataLoader, DistributedSampler, Mnist, Split};
use tch_parallel::distributed::{AverageMeter, DistributedDataParallel, ProcessGroup};
use tch_parallel::nn::{LinearOptions, linear};
use tch_parallel::optim::{Optimizer, Sgd, SgdOptions};

fn main() -> Result<()> {
    let group = ProcessGroup::from_env()?;
    tch::manual_seed(group.rank() as i64);
    let vs = VarStore::new(group.device());
    let model = mlp(&vs.root());
    let model = DistributedDataParallel::new(model, &vs, &group)?;
    let mut optimizer = Sgd::new(&vs, SgdOptions { lr: 0.05, ..Default::default() })?;
    let sampler = DistributedSampler::new(&group, 42);
    let loader = DataLoader::new(Mnist::embedded(Split::Train)?, sampler, 128)?;

    for epoch in 0..3 {
        let mut train_loss = AverageMeter::default();
        for batch in loader.epoch(epoch)?.to(vs.device()) {
            let (images, labels) = batch?;
            let loss = model.forward_t(&images, true).cross_entropy_for_logits(&labels);
            optimizer.zero_grad()?;
            model.backward(&loss)?;
            optimizer.step()?;
            train_loss.update(f64::try_from(&loss)?, labels.size()[0] as usize);
        }
        let (steps, train_loss) = (loader.len(), train_loss.avg());
        println!("Epoch={epoch}, train_loss={train_loss:.4}, {steps} steps");
    }
    checkpoint::save("mnist.safetensors", &vs, &group)?;
    Ok(())
}

fn mlp(path: &Path<'_>) -> nn::SequentialT {
    nn::seq_t()
        .add_fn(|images| images.flat_view())
        .add(linear(path / "0", 28 * 28, 128, LinearOptions::default()))
        .add_fn(|x| x.relu())
        .add_fn_t(|x, train| x.dropout(0.2, train))
        .add(linear(path / "3", 128, 128, LinearOptions::default()))
        .add_fn(|x| x.relu())
        .add(linear(path / "5", 128, 10, LinearOptions { bias: false }))
}
