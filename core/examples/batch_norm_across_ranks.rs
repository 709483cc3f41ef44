//! Batch normalisation on two ranks, held against one process with all the images.
//!
//! ```text
//! cargo launch -n 2 --tee 1 -- cargo run -rq -p tch-parallel --example batch_norm_across_ranks
//! ```

use anyhow::Result;
use exhibit_kit::weights::gradients;
use tch::{Kind, Tensor, nn, nn::Module, nn::ModuleT, nn::VarStore};
use tch_parallel::distributed::{DistributedDataParallel, ProcessGroup};
use tch_parallel::nn::{LinearOptions, NormLayer, linear};

const IMAGES: i64 = 2;

fn main() -> Result<()> {
    let group = ProcessGroup::from_env()?;
    compare(&group, "BatchNorm    ", &NormLayer::BatchNorm)?;
    compare(&group, "SyncBatchNorm", &NormLayer::SyncBatchNorm(group.clone()))
}

fn compare(group: &ProcessGroup, name: &str, norm_layer: &NormLayer) -> Result<()> {
    let images = images(group);
    // ANCHOR: train
    let vs = VarStore::new(group.device());
    let model = network(&vs, norm_layer);
    let model = DistributedDataParallel::new(model, &vs, group)?;

    let mut alone = VarStore::new(group.device());
    let expected = network(&alone, &NormLayer::BatchNorm);
    alone.copy(&vs)?;

    let first = IMAGES * group.rank() as i64;
    let outputs = model.f_forward_t(&images.narrow(0, first, IMAGES), true)?;
    model.backward(&outputs.square().mean(Kind::Float))?;

    let expected = expected.forward_t(&images, true);
    expected.square().mean(Kind::Float).backward();
    // ANCHOR_END: train
    println!(
        "{name}  outputs differ by {:.4}, gradients by {:.4}, running means by {:.4}",
        difference(&outputs, &expected.narrow(0, first, IMAGES))?,
        difference(&gradients(&vs), &gradients(&alone))?,
        difference(&vs.variables()["norm.running_mean"], &alone.variables()["norm.running_mean"])?,
    );
    Ok(())
}

/// The same on every rank. The later an image comes, the larger are its values.
fn images(group: &ProcessGroup) -> Tensor {
    tch::manual_seed(0);
    let float = (Kind::Float, group.device());
    let images = IMAGES * group.world_size() as i64;
    Tensor::randn([images, 3, 8, 8], float) + Tensor::arange(images, float).view([-1, 1, 1, 1])
}

fn network<'a>(vs: &VarStore, norm_layer: &NormLayer) -> nn::FuncT<'a> {
    let norm = norm_layer.build(vs.root() / "norm", 3);
    let last = linear(vs.root() / "last", 3 * 8 * 8, 10, LinearOptions::default());
    nn::func_t(move |images, train| last.forward(&norm.forward_t(images, train).relu().flat_view()))
}

fn difference(a: &Tensor, b: &Tensor) -> Result<f64> {
    Ok(f64::try_from((a - b).abs().max())?)
}
