//! A model of your own on several processes: compare with `data_parallel.rs` and `single_device.rs`.
//!
//! ```text
//! cargo launch -n 2 -- cargo run -rq -p tch-parallel --example distributed_data_parallel
//! ```

use anyhow::Result;
use tch::nn::{self, ModuleT};
use tch::{Kind, Tensor};
use tch_parallel::distributed::{AverageMeter, DistributedDataParallel, ProcessGroup};
use tch_parallel::optim::{Optimizer, Sgd, SgdOptions};

fn mlp(p: &nn::Path<'_>) -> nn::SequentialT {
    let hidden = nn::linear(p / "hidden", 2, 32, Default::default());
    let output = nn::linear(p / "output", 32, 2, Default::default());
    nn::seq_t().add(hidden).add_fn(Tensor::tanh).add(output)
}

fn main() -> Result<()> {
    tch::manual_seed(0);
    // ANCHOR: wrap
    let group = ProcessGroup::from_env()?;
    let vs = nn::VarStore::new(group.device());
    let model = mlp(&vs.root());
    let model = DistributedDataParallel::new(model, &vs, &group)?;
    // ANCHOR_END: wrap
    let mut optimizer = Sgd::new(&vs, SgdOptions { lr: 0.5, momentum: 0.9, ..Default::default() })?;

    // Which points lie inside a circle? All ranks draw the same points, and each takes its share.
    let points = Tensor::rand([256, 2], (Kind::Float, vs.device())) * 2.0 - 1.0;
    let points = points.tensor_split(group.world_size() as i64, 0).swap_remove(group.rank());
    let inside = points.norm_scalaropt_dim(2, [1], false).lt(0.7).to_kind(Kind::Int64);
    for step in 0..=200 {
        let loss = model.forward_t(&points, true).cross_entropy_for_logits(&inside);
        optimizer.zero_grad()?;
        model.backward(&loss)?; // as with DataParallel
        optimizer.step()?;
        if step % 50 == 0 {
            // ANCHOR: report
            let mut mean = AverageMeter::default();
            mean.update(loss.double_value(&[]), points.size()[0] as usize);
            let loss = mean.all_reduce(&group)?; // every rank takes part, one prints
            if group.rank() == 0 {
                println!("step {step:3}: loss {loss:.3}");
            }
            // ANCHOR_END: report
        }
    }
    Ok(())
}
