//! Apex's options, on two gradients of 16 bits: a large one and a small one.
//!
//! ```text
//! cargo launch -n 2 -- cargo run -rq -p tch-parallel --example apex
//! ```

use anyhow::Result;
use report::say;
use tch::{Kind, Tensor, nn::Init, nn::VarStore};
use tch_parallel::distributed::{ApexDistributedDataParallel, ApexOptions, ProcessGroup};

fn main() -> Result<()> {
    let group = ProcessGroup::from_env()?;
    // ANCHOR: options
    let default = ApexOptions::default();
    for (name, options) in [
        ("Apex's defaults", default),
        ("gradient_predivide_factor: 2", ApexOptions { gradient_predivide_factor: 2.0, ..default }),
        (
            "gradient_predivide_factor: 16",
            ApexOptions { gradient_predivide_factor: 16.0, ..default },
        ),
        ("allreduce_always_fp32: true", ApexOptions { allreduce_always_fp32: true, ..default }),
        ("gradient_average: false", ApexOptions { gradient_average: false, ..default }),
    ] {
        // ANCHOR_END: options
        let [large, small] = gradients(&group, options)?;
        say(&group, format!("{name:29}  {large:>7}  {small:.1e}"));
    }
    Ok(())
}

/// What two gradients have become that are 40,000 and 0.0000001 on every rank.
fn gradients(group: &ProcessGroup, options: ApexOptions) -> Result<[f64; 2]> {
    // ANCHOR: gradients
    let mut vs = VarStore::new(group.device());
    let weights = vs.root().var("weights", &[2], Init::Const(1.0));
    vs.half();
    let own = Tensor::from_slice(&[40_000.0, 1e-7]).to_kind(Kind::Half).to(group.device());
    let model = ApexDistributedDataParallel::new(weights, &vs, group, options)?;
    let loss = model.forward(|weights| (weights * &own).sum(Kind::Half))?;
    model.backward(&loss)?;
    // ANCHOR_END: gradients
    let gradient = vs.trainable_variables()[0].grad();
    Ok([gradient.double_value(&[0]), gradient.double_value(&[1])])
}
