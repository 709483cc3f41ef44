use tch::nn::{self, ModuleT};
use tch_parallel::data::{DataLoader, DistributedSampler, Mnist, Split};
use tch_parallel::distributed::{DistributedDataParallel, ProcessGroup};
use tch_parallel::optim::{Optimizer, Sgd, SgdOptions};

fn main() -> Result<(), tch_parallel::Error> {
    let group = ProcessGroup::from_env()?; // RANK, WORLD_SIZE …; without them: one process
    tch::manual_seed(42);
    let vs = nn::VarStore::new(group.device());
    let mlp = nn::seq()
        .add_fn(|images| images.flat_view())
        .add(nn::linear(vs.root() / "fc1", 784, 64, Default::default()))
        .add_fn(|x| x.relu())
        .add(nn::linear(vs.root() / "fc2", 64, 10, Default::default()));
    let model = DistributedDataParallel::new(mlp, &vs, &group)?;
    let mut optimizer = Sgd::new(&vs, SgdOptions { lr: 0.1, ..Default::default() })?;
    let digits = Mnist::embedded(Split::Train)?;
    let loader = DataLoader::new(digits, DistributedSampler::new(&group, 42), 128)?;

    for epoch in 0..3 {
        let mut loss_sum = 0.0;
        for batch in loader.epoch(epoch)?.to(group.device()) {
            let (images, labels) = batch?;
            let loss = model.forward_t(&images, true).cross_entropy_for_logits(&labels);
            optimizer.zero_grad()?;
            model.backward(&loss)?; // returns when the gradients are averaged over the ranks
            optimizer.step()?;
            loss_sum += loss.double_value(&[]);
        }
        let train_loss = loss_sum / loader.len() as f64;
        println!("rank {}, epoch {epoch}: train_loss={train_loss:.4}", group.rank());
    }
    let sum = vs.trainable_variables()[0].sum(tch::Kind::Double).double_value(&[]);
    println!("rank {}: the first layer's biases add up to {sum}", group.rank());
    Ok(())
}
