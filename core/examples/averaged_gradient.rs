//! What the exchange does to a gradient: the average over the ranks is the gradient of all data.
//!
//! ```text
//! cargo launch -n 2 --tee 1 -- cargo run -rq -p tch-parallel --example averaged_gradient
//! ```

use anyhow::Result;
use tch::{Kind, Tensor, nn, nn::ModuleT, nn::VarStore};
use tch_parallel::distributed::{DistributedDataParallel, ProcessGroup};

fn main() -> Result<()> {
    let group = ProcessGroup::from_env()?;
    // ANCHOR: gradient
    let vs = VarStore::new(group.device());
    let line = nn::LinearConfig { ws_init: nn::Init::Const(0.0), bs_init: None, bias: false };
    let line = nn::linear(vs.root(), 1, 1, line);
    let model = DistributedDataParallel::new(line, &vs, &group)?;
    let weight = &vs.trainable_variables()[0];

    // Four points on the line y = 3x, two for each rank: 0 and 2, 1 and 3.
    let first = group.rank() as f32;
    let x = Tensor::from_slice(&[first, first + 2.0]).view([2, 1]).to(group.device());
    let loss = |output: Tensor| (output - &x * 3.0).square().mean(Kind::Float);

    let own = {
        let _no_sync = model.no_sync();
        model.backward(&loss(model.forward_t(&x, true)))?;
        weight.grad().copy()
    };
    let _ = weight.grad().zero_();
    model.backward(&loss(model.forward_t(&x, true)))?;
    let averaged = weight.grad();
    // ANCHOR_END: gradient
    let [own, averaged] = [own, averaged].map(|gradient| gradient.double_value(&[0, 0]));
    println!("rank {}: own gradient {own}, after the exchange {averaged}", group.rank());
    Ok(())
}
