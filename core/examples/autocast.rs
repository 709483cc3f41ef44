//! What autocast computes in 16 bits, and what it does not.
//!
//! ```text
//! cargo run -rq -p tch-parallel --example autocast
//! ```

use anyhow::Result;
use tch::{Device, Kind, Tensor};
use tch_parallel::amp::autocast;

fn main() -> Result<()> {
    // ANCHOR: autocast
    let x = Tensor::randn([4, 8], (Kind::Float, Device::Cpu));
    let weight = Tensor::randn([8, 8], (Kind::Float, Device::Cpu)).set_requires_grad(true);
    let labels = Tensor::from_slice(&[0i64, 1, 2, 3]);

    let loss = autocast(Device::Cpu, Some(Kind::BFloat16), || {
        let product = x.matmul(&weight);
        let sum = &product + &x;
        let loss = product.cross_entropy_for_logits(&labels);
        for (name, tensor) in [
            ("the input", &x),
            ("the weight", &weight),
            ("input times weight", &product),
            ("that through relu", &product.relu()),
            ("that plus the input", &sum),
            ("that through softmax", &product.softmax(-1, None)),
            ("the loss", &loss),
        ] {
            println!("{name:22} {:?}", tensor.kind());
        }
        loss
    })?;
    loss.backward();
    println!("{:22} {:?}", "the weight's gradient", weight.grad().kind());
    // ANCHOR_END: autocast
    Ok(())
}
