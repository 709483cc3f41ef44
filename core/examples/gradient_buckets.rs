//! Buckets of gradients, and how much of their exchange the backward pass hides.
//!
//! ```text
//! cargo launch -n 2 -- cargo run -rq -p tch-parallel --example gradient_buckets
//! ```

use anyhow::Result;
use std::time::Duration;
use tch::nn::{self, VarStore};
use tch::{Kind, Tensor};
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
        let data = train(&group, TUTORIAL, bucket_cap_mb)?;
        if group.rank() == 0 {
            println!("the tutorial's model, {}", name(bucket_cap_mb));
            print_buckets(&data);
        }
    }
    for bucket_cap_mb in [None, Some(4.0), Some(1000.0)] {
        let data = train(&group, LARGE, bucket_cap_mb)?;
        if group.rank() == 0 {
            println!("a larger model, {}", name(bucket_cap_mb));
            print_buckets(&data);
            print_times(&data);
        }
    }
    Ok(())
}

fn name(bucket_cap_mb: Option<f64>) -> String {
    bucket_cap_mb.map_or("default buckets".into(), |size| format!("bucket_cap_mb {size}"))
}

fn train(
    group: &ProcessGroup,
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
    Ok(data)
}

fn print_buckets(data: &DdpLoggingData) {
    println!("  step 1:      buckets of {:?} bytes", data.bucket_sizes);
    println!("  from step 2: buckets of {:?} bytes", data.rebuilt_bucket_sizes);
}

fn print_times(data: &DdpLoggingData) {
    let millis = |time: Duration| time.as_secs_f64() * 1e3;
    println!(
        "  backward {:.1} ms, exchange {:.1} ms, overlap {:.1} ms",
        millis(data.avg_backward_compute_time),
        millis(data.avg_backward_comm_time),
        millis(data.avg_backward_compute_comm_overlap_time),
    );
}
