//! Which gradient travels in which bucket, as a communication hook sees it.
//!
//! ```text
//! cargo launch -n 2 -- cargo run -rq -p tch-parallel --example bucket_order
//! ```

use anyhow::Result;
use report::say;
use std::collections::HashMap;
use tch::{Kind, Tensor, nn, nn::Module, nn::VarStore};
use tch_parallel::distributed::hooks::{self, AllReduce, CommHook};
use tch_parallel::distributed::{DdpOptions, DistributedDataParallel, ProcessGroup};
use tch_parallel::nn::{LinearOptions, linear};

fn main() -> Result<()> {
    let group = ProcessGroup::from_env()?;
    for find_unused_parameters in [false, true] {
        say(&group, format!("find_unused_parameters {find_unused_parameters}"));
        train(&group, find_unused_parameters)?;
    }
    Ok(())
}

fn train(group: &ProcessGroup, find_unused_parameters: bool) -> Result<()> {
    // ANCHOR: model
    let vs = VarStore::new(group.device());
    let layer = |name| linear(vs.root() / name, 64, 64, LinearOptions::default());
    // Registered in another order than they are used.
    let (output, input, middle) = (layer("output"), layer("input"), layer("middle"));
    let net = nn::func_t(move |x, _| output.forward(&middle.forward(&input.forward(x))));
    // A weight has 16 KiB, a bias 256 bytes.
    let bucket_cap_mb = Some(16.0 / 1024.0);
    let comm_hook: Option<Box<dyn CommHook>> = Some(Box::new(show(&vs)));
    let options =
        DdpOptions { bucket_cap_mb, find_unused_parameters, comm_hook, ..Default::default() };
    let model = DistributedDataParallel::with_options(net, &vs, group, options)?;
    // ANCHOR_END: model

    for step in 1..=2 {
        say(group, format!("  step {step}"));
        let x = Tensor::ones([8, 64], (Kind::Float, group.device()));
        model.backward(&model.f_forward_t(&x, true)?.mean(Kind::Float))?;
    }
    Ok(())
}

// ANCHOR: hook
/// Averages gradients, and prints the names of the parameters in each bucket.
fn show(vs: &VarStore) -> impl CommHook + use<> {
    let address = |parameter: &Tensor| parameter.data_ptr() as usize;
    let names: HashMap<_, _> =
        vs.variables().into_iter().map(|(name, parameter)| (address(&parameter), name)).collect();
    hooks::from_fn("show and average", move |group, bucket| {
        if group.rank() == 0 {
            let parameters = bucket.parameters()?;
            let names: Vec<_> = parameters.iter().map(|each| &*names[&address(each)]).collect();
            println!("    bucket {}: {}", bucket.index(), names.join(", "));
        }
        AllReduce.start(group, bucket)
    })
}
// ANCHOR_END: hook
