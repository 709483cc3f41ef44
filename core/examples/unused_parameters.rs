//! A head of the model that not every rank uses in its loss.
//!
//! ```text
//! cargo launch -n 2 -- cargo run -rq -p tch-parallel --example unused_parameters
//! cargo launch -n 2 -- cargo run -rq -p tch-parallel --example unused_parameters find_unused_parameters
//! cargo launch -n 2 -- cargo run -rq -p tch-parallel --example unused_parameters static_graph
//! ```

use anyhow::Result;
use report::exit;
use tch::{Kind, Tensor, nn, nn::Linear, nn::Module, nn::VarStore};
use tch_parallel::distributed::{DdpOptions, DistributedDataParallel, ProcessGroup};

fn main() {
    exit(run)
}

fn run() -> Result<()> {
    let group = ProcessGroup::from_env()?;
    let option = std::env::args().nth(1).unwrap_or_default();
    let vs = VarStore::new(group.device());
    let find_unused_parameters = option == "find_unused_parameters";
    let static_graph = option == "static_graph";
    let options = DdpOptions { find_unused_parameters, static_graph, ..Default::default() };
    let model = DistributedDataParallel::with_options(Heads::new(&vs), &vs, &group, options)?;
    let x = Tensor::ones([1, 1], (Kind::Float, group.device()));
    for step in 1..=4 {
        // ANCHOR: loss
        // Rank 0 uses the second head in steps 1 and 2, rank 1 never does.
        let with_second = group.rank() == 0 && step <= 2;
        let output = model.forward(|heads| {
            let hidden = heads.trunk.forward(&x);
            let first = heads.first.forward(&hidden);
            if with_second { first + heads.second.forward(&hidden) } else { first }
        })?;
        vs.trainable_variables().iter_mut().for_each(Tensor::zero_grad);
        model.backward(&output.sum(Kind::Float))?;
        // ANCHOR_END: loss
        if group.rank() == 0 {
            report(step, &model);
        }
    }
    Ok(())
}

fn report(step: i64, model: &DistributedDataParallel<Heads>) {
    let Heads { trunk, first, second } = model.module();
    let gradient = |layer: &Linear| match layer.ws.grad() {
        gradient if gradient.defined() => gradient.double_value(&[0, 0]).to_string(),
        _ => "none".into(),
    };
    let [trunk, first, second] = [trunk, first, second].map(gradient);
    println!("step {step}: gradient of trunk {trunk}, of first {first}, of second {second}");
}

/// Two heads over a common trunk.
#[derive(Debug)]
struct Heads {
    trunk: Linear,
    first: Linear,
    second: Linear,
}

impl Heads {
    /// All weights are 1, so that gradients can be checked by hand.
    fn new(vs: &VarStore) -> Heads {
        let config = nn::LinearConfig { ws_init: nn::Init::Const(1.0), bs_init: None, bias: false };
        let layer = |name| nn::linear(vs.root() / name, 1, 1, config);
        Heads { trunk: layer("trunk"), first: layer("first"), second: layer("second") }
    }
}
