//! What virtual ranks cost: steps of ranks that each compute for several, against accumulating as many batches.
//!
//! ```text
//! cargo launch -n 2 -- cargo run -rq -p tch-parallel --example virtual_ranks
//! ```

use std::time::{Duration, Instant};
use tch::{Kind, Tensor, nn, nn::ModuleT, nn::VarStore};
use tch_parallel::distributed::{DdpOptions, DistributedDataParallel, ProcessGroup};
use tch_parallel::optim::{Optimizer, Sgd, SgdOptions};
use tch_parallel::{Result, data::Shard};

const VIRTUAL_RANKS: usize = 12;

/// The samples of a virtual rank in a step.
const BATCH: i64 = 128;

/// How often both ways take turns, and the steps of a turn.
const TURNS: usize = 9;
const STEPS: usize = 10;

struct Training {
    model: DistributedDataParallel<nn::SequentialT>,
    optimizer: Sgd,
    images: Tensor,
    labels: Tensor,
    parts: i64,
}

impl Training {
    fn new(vs: &VarStore, group: &ProcessGroup, virtual_ranks: Option<usize>) -> Result<Self> {
        tch::manual_seed(0);
        let p = vs.root();
        let net = nn::seq_t()
            .add(nn::linear(&p / "0", 784, 128, Default::default()))
            .add_fn(Tensor::relu)
            .add_fn_t(|x, train| x.dropout(0.2, train))
            .add(nn::linear(&p / "3", 128, 128, Default::default()))
            .add_fn(Tensor::relu)
            .add(nn::linear(&p / "5", 128, 10, Default::default()));
        let options = DdpOptions { virtual_ranks, ..Default::default() };
        let parts = Shard::from(group).with_virtual_ranks(VIRTUAL_RANKS)?.parts() as i64;
        Ok(Training {
            model: DistributedDataParallel::with_options(net, vs, group, options)?,
            optimizer: Sgd::new(vs, SgdOptions { lr: 0.01, ..Default::default() })?,
            images: Tensor::rand([parts * BATCH, 784], (Kind::Float, group.device())),
            labels: Tensor::zeros([parts * BATCH], (Kind::Int64, group.device())),
            parts,
        })
    }

    fn loss(&self, images: &Tensor, labels: &Tensor) -> Result<Tensor> {
        Ok(self.model.forward(|net| net.forward_t(images, true))?.cross_entropy_for_logits(labels))
    }

    fn virtual_step(&mut self, step: i64) -> Result<()> {
        let seed = step * VIRTUAL_RANKS as i64;
        let batch = (self.images.shallow_clone(), self.labels.shallow_clone());
        // ANCHOR: step
        self.optimizer.zero_grad()?;
        for share in self.model.shares(batch, seed) {
            let (images, labels) = share?;
            self.model.backward(&self.loss(&images, &labels)?)?;
        }
        self.optimizer.step()
        // ANCHOR_END: step
    }

    fn accumulating_step(&mut self) -> Result<()> {
        self.optimizer.zero_grad()?;
        for part in 0..self.parts {
            let _no_sync = (part + 1 < self.parts).then(|| self.model.no_sync());
            let of = |tensor: &Tensor| tensor.narrow(0, part * BATCH, BATCH);
            let loss = self.loss(&of(&self.images), &of(&self.labels))? / self.parts as f64;
            self.model.backward(&loss)?;
        }
        self.optimizer.step()
    }
}

/// The time of a step in a turn.
fn time(mut step: impl FnMut(i64) -> Result<()>) -> Result<Duration> {
    let begin = Instant::now();
    (0..STEPS as i64).try_for_each(&mut step)?;
    Ok(begin.elapsed() / STEPS as u32)
}

fn main() -> Result<()> {
    let group = ProcessGroup::from_env()?;
    let stores = [(); 2].map(|()| VarStore::new(group.device()));
    let mut accumulates = Training::new(&stores[0], &group, None)?;
    let mut computes = Training::new(&stores[1], &group, Some(VIRTUAL_RANKS))?;
    let mut ratios = Vec::new();
    for _ in 0..TURNS {
        let plain = time(|_| accumulates.accumulating_step())?;
        let own = time(|step| computes.virtual_step(step))?;
        ratios.push((own.div_duration_f64(plain), own, plain));
    }
    ratios.sort_by(|(a, ..), (b, ..)| a.total_cmp(b));
    let (ratio, own, plain) = ratios[TURNS / 2];
    if group.rank() == 0 {
        let [own, plain] = [own, plain].map(|time| time.as_secs_f64() * 1e3);
        println!("accumulating {} batches: {plain:.1} ms", accumulates.parts);
        println!("computing for as many virtual ranks: {own:.1} ms, {ratio:.2} times as long");
    }
    Ok(())
}
