//! Gradients beside the buckets, and gradients that are views into them.
//!
//! ```text
//! cargo launch -n 2 -- cargo run -rq -p tch-parallel --example gradient_as_bucket_view
//! ```

use anyhow::Result;
use report::say;
use std::{thread, time::Duration};
use tch::{Kind, Tensor, nn, nn::VarStore};
use tch_parallel::distributed::{DdpOptions, DistributedDataParallel, ProcessGroup};
use tch_parallel::{LogicalDevice, memory::memory_allocated};

fn main() -> Result<()> {
    let group = ProcessGroup::from_env()?;
    for gradient_as_bucket_view in [false, true] {
        let [weights, wrapped, after_a_step] = bytes(&group, gradient_as_bucket_view)?;
        let sizes =
            format!("weights {weights}, wrapped {wrapped}, after a step {after_a_step} bytes");
        say(&group, format!("gradient_as_bucket_view {gradient_as_bucket_view}: {sizes}"));
    }
    Ok(())
}

/// The bytes allocated, when gloo's threads have let go of what they have sent. They do so a moment
/// after everybody has it.
fn settled(device: LogicalDevice) -> Result<usize> {
    let mut least = memory_allocated(device)?;
    for _ in 0..100 {
        thread::sleep(Duration::from_millis(2));
        least = least.min(memory_allocated(device)?);
    }
    Ok(least)
}

fn bytes(group: &ProcessGroup, gradient_as_bucket_view: bool) -> Result<[usize; 3]> {
    // ANCHOR: bytes
    let vs = VarStore::new(group.device());
    let layer = nn::linear(vs.root(), 1024, 1024, Default::default());
    let device = LogicalDevice::of(&layer.ws);
    let weights = memory_allocated(device)?;

    let options = DdpOptions { gradient_as_bucket_view, ..Default::default() };
    let model = DistributedDataParallel::with_options(layer, &vs, group, options)?;
    let wrapped = settled(device)?;

    {
        let x = Tensor::ones([1, 1024], (Kind::Float, group.device()));
        model.backward(&model.f_forward_t(&x, true)?.mean(Kind::Float))?;
    }
    let after_a_step = settled(device)?;
    // ANCHOR_END: bytes
    Ok([weights, wrapped, after_a_step])
}
