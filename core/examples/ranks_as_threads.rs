//! Two ranks as threads of one process, or as a process each: in Rust no lock of an interpreter decides.
//!
//! ```text
//! cargo launch -n 1 -- cargo run -rq -p tch-parallel --example ranks_as_threads
//! cargo launch -n 2 -- cargo run -rq -p tch-parallel --example ranks_as_threads
//! ```

use anyhow::{Context, Result, anyhow, bail};
use report::exit;
use std::{sync::Mutex, sync::PoisonError, thread, time::Duration, time::Instant};
use tch::{Kind, Tensor, nn, nn::VarStore};
use tch_parallel::data::{DataLoader, DistributedSampler, Mnist, Split};
use tch_parallel::distributed::{
    DeviceChoice, DistributedDataParallel, Env, ProcessGroup, ProcessGroupOptions, Store,
};
use tch_parallel::optim::{Optimizer, Sgd, SgdOptions};

const RANKS: usize = 2;

/// Initial weights are drawn from the process's one generator.
static GENERATOR: Mutex<()> = Mutex::new(());

fn main() {
    exit(run)
}

fn run() -> Result<()> {
    let env = Env::read()?.context("no launcher has started this process")?;
    let store = Store::from_env(Duration::from_secs(60))?;
    match env.world_size {
        1 => {}
        RANKS => return train(&store, env.rank, "process"),
        ranks => bail!("{ranks} processes are neither 1 nor {RANKS}"),
    }
    thread::scope(|scope| {
        let start = |rank| -> Result<_> {
            let store = store.try_clone()?;
            Ok(scope.spawn(move || train(&store, rank, "thread")))
        };
        let ranks = (0..RANKS).map(start).collect::<Result<Vec<_>>>()?;
        let ended = ranks.into_iter().map(|rank| rank.join());
        ended.into_iter().try_for_each(|rank| rank.map_err(|_| anyhow!("a rank panicked"))?)
    })
}

fn train(store: &Store, rank: usize, kind: &str) -> Result<()> {
    let options = ProcessGroupOptions { device: DeviceChoice::Cpu, ..Default::default() };
    let group = ProcessGroup::with_store(&store.with_prefix("ranks")?, rank, RANKS, options)?;
    tch::set_num_threads(1);
    let vs = VarStore::new(group.device());
    let model = DistributedDataParallel::new(mlp(&vs, rank), &vs, &group)?;
    let mut optimizer = Sgd::new(&vs, SgdOptions { lr: 0.1, ..Default::default() })?;
    let sampler = DistributedSampler::new(&group, 42);
    let loader = DataLoader::new(Mnist::embedded(Split::Train)?, sampler, 128)?;

    let begun = Instant::now();
    for batch in loader.epoch(0)? {
        let (images, labels) = batch?;
        let loss = model.f_forward_t(&images, true)?.cross_entropy_for_logits(&labels);
        optimizer.zero_grad()?;
        model.backward(&loss)?;
        optimizer.step()?;
    }
    let step = begun.elapsed().as_secs_f64() * 1e3 / loader.len() as f64;
    let size = |weight: &Tensor| weight.abs().sum(Kind::Double).double_value(&[]);
    let weights: f64 = vs.trainable_variables().iter().map(size).sum();
    println!("rank {rank}, a {kind}: weights {weights}, {step:.2} ms per step");
    Ok(())
}

fn mlp(vs: &VarStore, rank: usize) -> nn::Sequential {
    let _alone = GENERATOR.lock().unwrap_or_else(PoisonError::into_inner);
    tch::manual_seed(rank as i64);
    nn::seq()
        .add_fn(|images| images.flat_view())
        .add(nn::linear(vs.root() / "fc1", 784, 64, Default::default()))
        .add_fn(Tensor::relu)
        .add(nn::linear(vs.root() / "fc2", 64, 10, Default::default()))
}
