//! The running mean of a batch normalisation, on both ranks.
//!
//! ```text
//! cargo launch -n 2 -- cargo run -rq -p tch-parallel --example broadcast_buffers
//! ```

use anyhow::Result;
use report::say;
use tch::{Kind, Tensor, nn::ModuleT, nn::VarStore};
use tch_parallel::distributed::{DdpOptions, DistributedDataParallel, ProcessGroup};
use tch_parallel::nn::{BatchNormOptions, batch_norm2d};

fn main() -> Result<()> {
    let group = ProcessGroup::from_env()?;
    for broadcast_buffers in [true, false] {
        say(&group, format!("broadcast_buffers {broadcast_buffers}"));
        train(&group, broadcast_buffers)?;
    }
    Ok(())
}

fn train(group: &ProcessGroup, broadcast_buffers: bool) -> Result<()> {
    // ANCHOR: steps
    let vs = VarStore::new(group.device());
    let norm = batch_norm2d(vs.root(), 1, BatchNormOptions::default());
    let options = DdpOptions { broadcast_buffers, ..Default::default() };
    let model = DistributedDataParallel::with_options(norm, &vs, group, options)?;

    // Rank 0's images have the mean 10, rank 1's the mean 20.
    let mean = 10 * (1 + group.rank() as i64);
    let images = Tensor::arange(5, (Kind::Float, group.device())).view([1, 1, 1, 5]) - 2 + mean;
    let running_mean = || vs.variables()["running_mean"].copy();
    for step in 1..=3 {
        let (seen, outputs) =
            model.forward(|norm| (running_mean(), norm.forward_t(&images, true)))?;
        report(group, &format!("forward pass of step {step} begins"), &seen)?;
        model.backward(&outputs.square().mean(Kind::Float))?;
    }
    report(group, "after step 3", &running_mean())?;
    model.sync_buffers()?;
    report(group, "after sync_buffers", &running_mean())?;
    // ANCHOR_END: steps
    Ok(())
}

fn report(group: &ProcessGroup, when: &str, running_mean: &Tensor) -> Result<()> {
    let ranks = group.all_gather(running_mean)?;
    let means = ranks.iter().map(|mean| format!("{:.3}", mean.double_value(&[0])));
    say(group, format!("  {when:30} {}", means.collect::<Vec<_>>().join("  ")));
    Ok(())
}
