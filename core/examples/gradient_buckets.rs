//! Buckets of gradients, and how much of their exchange the backward pass hides.
//!
//! ```text
//! cargo launch -n 2 -- cargo run -rq -p tch-parallel --example gradient_buckets
//! ```

use anyhow::Result;
use report::say;
use std::time::Duration;
use tch::{Kind, Tensor, nn, nn::VarStore};
use tch_parallel::distributed::{
    DdpLoggingData, DdpOptions, DistributedDataParallel, ProcessGroup,
};
use tch_parallel::nn::{LinearOptions, linear};

/// The pixels of a digit, two hidden layers, the ten classes.
const TUTORIAL: &[i64] = &[784, 128, 128, 10];

/// Eight layers of 4 MiB.
const LARGE: &[i64] = &[1024; 9];

fn main() -> Result<()> {
    let group = ProcessGroup::from_env()?;
    for bucket_cap_mb in [None, Some(0.05)] {
        train(&group, "the tutorial's model", TUTORIAL, bucket_cap_mb)?;
    }
    for bucket_cap_mb in [None, Some(4.0), Some(1000.0)] {
        print_times(&group, &train(&group, "a larger model", LARGE, bucket_cap_mb)?);
    }
    Ok(())
}

fn train(
    group: &ProcessGroup,
    name: &str,
    sizes: &[i64],
    bucket_cap_mb: Option<f64>,
) -> Result<DdpLoggingData> {
    // ANCHOR: buckets
    let vs = VarStore::new(group.device());
    let mut layers = nn::seq_t();
    for (number, size) in sizes.windows(2).enumerate() {
        // As in the tutorial, the last layer has no bias.
        let bias = number + 2 < sizes.len();
        layers = layers.add(linear(vs.root() / number, size[0], size[1], LinearOptions { bias }));
    }
    let options = DdpOptions { bucket_cap_mb, ..Default::default() };
    let model = DistributedDataParallel::with_options(layers, &vs, group, options)?;

    let images = Tensor::randn([128, sizes[0]], (Kind::Float, group.device()));
    for _ in 0..10 {
        model.backward(&model.f_forward_t(&images, true)?.square().mean(Kind::Float))?;
    }
    let data = model.logging_data()?;
    // ANCHOR_END: buckets
    let size = bucket_cap_mb.map_or("default buckets".into(), |mb| format!("bucket_cap_mb {mb}"));
    say(group, format!("{name}, {size}"));
    say(group, format!("  step 1:      buckets of {:?} bytes", data.bucket_sizes));
    say(group, format!("  from step 2: buckets of {:?} bytes", data.rebuilt_bucket_sizes));
    Ok(data)
}

fn print_times(group: &ProcessGroup, data: &DdpLoggingData) {
    let millis = |time: Duration| time.as_secs_f64() * 1e3;
    let line = format!(
        "  backward {:.1} ms, exchange {:.1} ms, overlap {:.1} ms",
        millis(data.avg_backward_compute_time),
        millis(data.avg_backward_comm_time),
        millis(data.avg_backward_compute_comm_overlap_time),
    );
    say(group, line);
}
