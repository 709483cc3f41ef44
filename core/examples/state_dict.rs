//! Saves a small network, and loads it from each of the files; its outputs then equal Python's to the last bit.
//!
//! ```text
//! cargo run -rq -p tch-parallel --example state_dict -- rust.pt python.pt …
//! ```

use anyhow::{Context, Result};
use std::env;
use tch::nn::{Linear, Module, ModuleT, VarStore};
use tch::{Device, Kind, Tensor, no_grad};
use tch_parallel::nn::{BatchNorm, Conv, batch_norm2d, conv2d, linear};
use tch_parallel::{checkpoint, distributed::ProcessGroup};

fn main() -> Result<()> {
    let mut files = env::args().skip(1);
    let group = ProcessGroup::from_env()?;
    tch::manual_seed(0);
    let mut vs = VarStore::new(Device::Cpu);
    let network = Network::new(&vs);
    network.forward(true);
    let own = files.next().context("a file to write is missing")?;
    checkpoint::save(&own, &vs, &group)?;
    println!("{own}: {:?}", network.forward(false));
    for file in files {
        checkpoint::load(&file, &mut vs)?;
        println!("{file}: {:?}", network.forward(false));
    }
    Ok(())
}

struct Network {
    conv: Conv<2>,
    bn: BatchNorm,
    fc: Linear,
}

impl Network {
    fn new(vs: &VarStore) -> Self {
        let path = |name| vs.root() / name;
        Network {
            conv: conv2d(path("conv"), 3, 8, 3, Default::default()),
            bn: batch_norm2d(path("bn"), 8, Default::default()),
            fc: linear(path("fc"), 8, 5, Default::default()),
        }
    }

    /// The bits of the outputs for fixed inputs, and the batches that the running statistics are of.
    fn forward(&self, train: bool) -> Vec<i64> {
        let numbers = Tensor::arange(4 * 3 * 6 * 6, (Kind::Float, Device::Cpu)) * 0.37;
        let images = numbers.sin().view([4, 3, 6, 6]);
        let outputs = no_grad(|| {
            let seen = self.bn.forward_t(&self.conv.forward(&images), train).relu();
            let pooled = seen.mean_dim(&[2i64, 3][..], false, Kind::Float);
            self.fc.forward(&pooled)
        });
        let bits = outputs.view_dtype(Kind::Int).view(-1);
        let bits = bits.iter::<i64>().map(Iterator::collect::<Vec<_>>);
        let tracked = self.bn.running_stats.as_ref().map(|stats| &stats.num_batches_tracked);
        let tracked = tracked.map(|count| count.int64_value(&[]));
        bits.into_iter().flatten().chain(tracked).collect()
    }
}
