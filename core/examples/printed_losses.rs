//! The losses that the first draft of Boiko's program prints, and the true means.
//!
//! ```text
//! cargo run -rq -p tch-parallel --example printed_losses
//! ```

use anyhow::Result;
use tch::{Device, Tensor, nn, nn::ModuleT, nn::Path, nn::VarStore, no_grad};
use tch_parallel::data::{DataLoader, Mnist, RandomSampler, Split};
use tch_parallel::distributed::AverageMeter;
use tch_parallel::nn::{LinearOptions, linear};
use tch_parallel::optim::{Optimizer, Sgd, SgdOptions};

/// The losses in the draft's notebook, of training and validation.
const NOTEBOOK: [[f64; 2]; 10] = [
    [7.3059, 5.1820],
    [3.5373, 2.5782],
    [2.2328, 1.9793],
    [1.8420, 1.7346],
    [1.6491, 1.5720],
    [1.5259, 1.4612],
    [1.4241, 1.3819],
    [1.3487, 1.3151],
    [1.2846, 1.2522],
    [1.2254, 1.1889],
];

fn main() -> Result<()> {
    tch::manual_seed(0);
    let vs = VarStore::new(Device::Cpu);
    let model = draft(&vs.root());
    let mut optimizer = Sgd::new(&vs, SgdOptions { lr: 0.01, ..Default::default() })?;
    // As many images per epoch as all of MNIST, so that the batches are as large as the draft's.
    let sampler = RandomSampler { num_samples: Some(60_000), ..RandomSampler::new(42) };
    let loader = DataLoader::new(Mnist::embedded(Split::Train)?, sampler, 128)?;

    println!("epoch  printed  mean    validation  printed/mean  notebook  validation");
    for (epoch, [notebook, notebooks_val]) in (0..).zip(NOTEBOOK) {
        let (mut printed, mut mean) = (0.0, AverageMeter::default());
        for batch in loader.epoch(epoch)? {
            let (images, labels) = batch?;
            let output = model.forward_t(&unnormalised(&images), true);
            let batch_loss = output.cross_entropy_for_logits(&labels);
            optimizer.zero_grad()?;
            batch_loss.backward();
            optimizer.step()?;
            // ANCHOR: losses
            let (batch_loss, samples) = (f64::try_from(&batch_loss)?, labels.size()[0]);
            printed += batch_loss / samples as f64;
            mean.update(batch_loss, samples as usize);
            // ANCHOR_END: losses
        }
        // The draft's test set is its training set, and its dropout stays on.
        let mut val = 0.0;
        for batch in loader.epoch(epoch)? {
            let (images, labels) = batch?;
            let output = no_grad(|| model.forward_t(&unnormalised(&images), true));
            let batch_loss = f64::try_from(output.cross_entropy_for_logits(&labels))?;
            val += batch_loss / labels.size()[0] as f64;
        }
        let (mean, ratio) = (mean.avg(), printed / mean.avg());
        print!("{epoch:5}  {printed:7.4}  {mean:.4}  {val:10.4}");
        println!("  {ratio:12.3}  {notebook:8.4}  {notebooks_val:10.4}");
    }
    Ok(())
}

fn draft(path: &Path<'_>) -> nn::SequentialT {
    nn::seq_t()
        .add_fn(|images| images.flat_view())
        .add(linear(path / "0", 28 * 28, 128, LinearOptions::default()))
        .add_fn(|x| x.relu())
        .add_fn_t(|x, train| x.dropout(0.2, train))
        .add(linear(path / "3", 128, 128, LinearOptions::default()))
        .add_fn_t(|x, train| x.dropout(0.2, train))
        .add(linear(path / "5", 128, 10, LinearOptions::default()))
}

/// Pixels from 0 to 1, as `ToTensor` alone gives them.
fn unnormalised(images: &Tensor) -> Tensor {
    ((images * 0.3081 + 0.1307) * 255.0).round() / 255.0
}
