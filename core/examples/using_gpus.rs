//! The forum's training script, one program for one device and for several.
//!
//! ```text
//! cargo run -rq -p tch-parallel --example using_gpus
//! cargo run -rq -p tch-parallel --example using_gpus -- 4xcpu
//! ```

use anyhow::Result;
use tch::{Kind, Tensor, nn, nn::Linear, nn::Module, nn::Path, nn::VarStore};
use tch_parallel::data::{DataLoader, Mnist, RandomSampler, Split};
use tch_parallel::optim::{Optimizer, Sgd, SgdOptions};
use tch_parallel::{Devices, data_parallel::DataParallel, distributed::AverageMeter};

const NUM_EPOCHS: u64 = 2;

/// Returns logits and probabilities, as the script's model does.
struct MyModel {
    hidden: Linear,
    output: Linear,
}

impl MyModel {
    fn new(path: &Path<'_>) -> Self {
        let hidden = nn::linear(path / "hidden", 784, 32, Default::default());
        MyModel { hidden, output: nn::linear(path / "output", 32, 10, Default::default()) }
    }

    fn forward(&self, features: Tensor) -> (Tensor, Tensor) {
        let hidden = self.hidden.forward(&features.flat_view()).relu();
        let logits = self.output.forward(&hidden);
        let probas = logits.softmax(1, Kind::Float);
        (logits, probas)
    }
}

fn main() -> Result<()> {
    let devices: Devices = std::env::args().nth(1).as_deref().unwrap_or("1xcpu").parse()?;
    let device = devices.first();
    tch::manual_seed(0);
    let vs = VarStore::new(device.into());
    if devices.len() > 1 {
        println!("Using {} GPUs: {devices}", devices.len());
    }
    // On one device this is the model itself.
    let model = DataParallel::new(MyModel::new, &vs, &devices)?;
    let mut optimizer = Sgd::new(&vs, SgdOptions { lr: 0.1, ..Default::default() })?;
    let train_loader = DataLoader::new(Mnist::embedded(Split::Train)?, RandomSampler::new(1), 128)?;

    for epoch in 0..NUM_EPOCHS {
        let mut mean = AverageMeter::default();
        for batch in train_loader.epoch(epoch)?.to(device) {
            let (features, targets) = batch?;
            let (logits, _probas) = model.forward(features, MyModel::forward)?;
            let cost = logits.cross_entropy_for_logits(&targets);
            optimizer.zero_grad()?;
            model.backward(&cost)?;
            optimizer.step()?;
            mean.update(cost.double_value(&[]), targets.size()[0] as usize);
        }
        println!("epoch {epoch}: mean cost {:.4}", mean.avg());
    }
    Ok(())
}
