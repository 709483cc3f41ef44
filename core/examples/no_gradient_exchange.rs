//! Data shared out, gradients not exchanged: every rank ends up with a model of its own.
//!
//! ```text
//! cargo launch -n 2 -- cargo run -rq -p tch-parallel --example no_gradient_exchange
//! ```

use anyhow::Result;
use report::say;
use tch::{Kind, Tensor, nn, nn::ModuleT, nn::VarStore};
use tch_parallel::distributed::{DistributedDataParallel, ProcessGroup};
use tch_parallel::optim::{Optimizer, Sgd, SgdOptions};

fn main() -> Result<()> {
    let group = ProcessGroup::from_env()?;
    for exchange in [false, true] {
        say(&group, if exchange { "gradients exchanged" } else { "gradients not exchanged" });
        train(&group, exchange)?;
    }
    Ok(())
}

fn train(group: &ProcessGroup, exchange: bool) -> Result<()> {
    // ANCHOR: train
    let vs = VarStore::new(group.device());
    let line = nn::LinearConfig { ws_init: nn::Init::Const(0.0), bs_init: None, bias: false };
    let line = nn::linear(vs.root(), 1, 1, line);
    let model = DistributedDataParallel::new(line, &vs, group)?;
    let sgd = SgdOptions { lr: 0.1, momentum: 0.9, ..Default::default() };
    let mut optimizer = Sgd::new(&vs, sgd)?;
    // With the exchange off, the wrapped model is as good as a bare one.
    let _no_sync = (!exchange).then(|| model.no_sync());

    // The data of rank 0 lie on the line y = x, those of rank 1 on y = 3x.
    let x = Tensor::from_slice(&[0.5f32, 1.0, 1.5]).view([3, 1]).to(group.device());
    let y = &x * (1 + 2 * group.rank() as i64);
    for step in 1..=4 {
        let loss = (model.forward_t(&x, true) - &y).square().mean(Kind::Float);
        optimizer.zero_grad()?;
        model.backward(&loss)?;
        optimizer.step()?;
        report(group, step, &vs, &optimizer)?;
    }
    // ANCHOR_END: train
    Ok(())
}

fn report(group: &ProcessGroup, step: usize, vs: &VarStore, optimizer: &Sgd) -> Result<()> {
    let weight = vs.trainable_variables()[0].detach().view([1]);
    let momentum = optimizer.state_dict()?.tensors[0].1.view([1]);
    let ranks = group.all_gather(&Tensor::cat(&[weight, momentum], 0))?;
    let ranks = ranks.iter().enumerate().map(|(rank, values)| {
        let (weight, momentum) = (values.double_value(&[0]), values.double_value(&[1]));
        format!("   rank {rank}: weight {weight:.4}, momentum {momentum:7.4}")
    });
    say(group, format!("  step {step}{}", ranks.collect::<String>()));
    Ok(())
}
