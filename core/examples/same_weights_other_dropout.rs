//! A seed of its own for every rank, and yet the same weights: rank 0's are handed out.
//!
//! ```text
//! cargo launch -n 2 --tee 1 -- cargo run -rq -p tch-parallel --example same_weights_other_dropout
//! ```

use anyhow::Result;
use tch::{Kind, Tensor, nn::VarStore};
use tch_parallel::distributed::{DistributedDataParallel, ProcessGroup};
use tch_parallel::nn::{LinearOptions, linear};

fn main() -> Result<()> {
    let group = ProcessGroup::from_env()?;
    // ANCHOR: seeds
    tch::manual_seed(group.rank() as i64);
    let vs = VarStore::new(group.device());
    let layer = linear(vs.root(), 4, 1, LinearOptions::default());
    let weights = || Vec::<f32>::try_from(vs.trainable_variables()[0].view([-1]));

    println!("rank {} drew {:.4?}", group.rank(), weights()?);
    let _model = DistributedDataParallel::new(layer, &vs, &group)?;
    println!("rank {} has  {:.4?}", group.rank(), weights()?);

    let kept = Tensor::ones([16], (Kind::Float, group.device())).dropout(0.2, true).gt(0.0);
    println!("rank {} keeps {:?}", group.rank(), Vec::<i64>::try_from(kept.to_kind(Kind::Int64))?);
    // ANCHOR_END: seeds
    Ok(())
}
