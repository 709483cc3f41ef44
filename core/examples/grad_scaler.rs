//! Gradients too small for 16 bits, gradients too large for them, and a scaler that deals with both.
//!
//! ```text
//! cargo launch -n 2 --tee 1 -- cargo run -rq -p tch-parallel --example grad_scaler
//! ```

use anyhow::Result;
use tch::{Kind, Tensor, nn, nn::ModuleT, nn::VarStore};
use tch_parallel::amp::{GradScaler, GradScalerOptions, autocast};
use tch_parallel::distributed::{DistributedDataParallel, ProcessGroup};
use tch_parallel::optim::{Optimizer, Sgd, SgdOptions};

fn main() -> Result<()> {
    let group = ProcessGroup::from_env()?;
    let vs = VarStore::new(group.device());
    let line = nn::LinearConfig { ws_init: nn::Init::Const(1.0), bs_init: None, bias: false };
    let line = nn::linear(vs.root(), 1, 1, line);
    let model = DistributedDataParallel::new(line, &vs, &group)?;
    let mut optimizer = Sgd::new(&vs, SgdOptions { lr: 1.0, ..Default::default() })?;
    let x = Tensor::ones([1, 1], (Kind::Float, group.device()));

    for enabled in [false, true] {
        // ANCHOR: loop
        let options = GradScalerOptions { enabled, growth_interval: 2, ..Default::default() };
        let mut scaler = GradScaler::new(options)?;
        for step in 1..=4 {
            // In step 2, rank 1's gradient is large. All others are small.
            let factor = if group.rank() == 1 && step == 2 { 2.0 } else { 1e-8 };
            let loss = autocast(group.device(), Some(Kind::Half), || {
                model.forward_t(&x, true).to_kind(Kind::Float).sum(Kind::Float) * factor
            })?;
            optimizer.zero_grad()?;
            model.backward(&scaler.scale(&loss)?)?;
            let stepped = scaler.step(&mut optimizer)?;
            scaler.update()?;
            // ANCHOR_END: loop
            let gradient = vs.trainable_variables()[0].grad().double_value(&[0, 0]);
            println!(
                "{:9} step {step}: gradient {gradient:.1e}, {}, scale {}",
                if enabled { "scaled," } else { "unscaled," },
                if stepped { "made" } else { "left out" },
                scaler.get_scale()?
            );
        }
    }
    Ok(())
}
