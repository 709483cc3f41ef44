//! A model of your own on several devices: three lines differ from training on one.

use anyhow::Result;
use tch::nn::{self, ModuleT};
use tch::{Kind, Tensor};
use tch_parallel::Devices;
use tch_parallel::data_parallel::DataParallel; // 1
use tch_parallel::optim::{Optimizer, Sgd, SgdOptions};

fn mlp(p: &nn::Path<'_>) -> nn::SequentialT {
    let hidden = nn::linear(p / "hidden", 2, 32, Default::default());
    let output = nn::linear(p / "output", 32, 2, Default::default());
    nn::seq_t().add(hidden).add_fn(Tensor::tanh).add(output)
}

fn main() -> Result<()> {
    tch::manual_seed(0);
    let devices: Devices = std::env::args().nth(1).as_deref().unwrap_or("2xcpu").parse()?;
    let vs = nn::VarStore::new(devices.first().into());
    let model = DataParallel::new(mlp, &vs, &devices)?; // 2, was: mlp(&vs.root())
    let mut optimizer = Sgd::new(&vs, SgdOptions { lr: 0.5, momentum: 0.9, ..Default::default() })?;

    // Which points lie inside a circle?
    let points = Tensor::rand([256, 2], (Kind::Float, vs.device())) * 2.0 - 1.0;
    let inside = points.norm_scalaropt_dim(2, [1], false).lt(0.7).to_kind(Kind::Int64);
    for step in 0..=200 {
        let loss = model.forward_t(&points, true).cross_entropy_for_logits(&inside);
        optimizer.zero_grad()?;
        model.backward(&loss)?; // 3, was: loss.backward()
        optimizer.step()?;
        if step % 50 == 0 {
            println!("step {step:3}: loss {:.3}", loss.double_value(&[]));
        }
    }
    Ok(())
}
