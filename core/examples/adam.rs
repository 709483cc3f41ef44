//! Ten steps of Adam on an embedding and a layer; saves the weights and the state of Adam, which
//! equal Python's to the last bit.
//!
//! ```text
//! cargo run -rq -p tch-parallel --example adam -- '{"lr": 0.01, "weight_decay": 0.1}' adam.safetensors
//! ```

use std::env;

use anyhow::{Context, Result};
use serde_json::Value;
use tch::nn::{Module, VarStore};
use tch::{Device, Kind, Tensor};
use tch_parallel::nn::{EmbeddingOptions, LinearOptions, embedding, linear};
use tch_parallel::optim::{Adam, AdamOptions, Optimizer};

fn main() -> Result<()> {
    let mut arguments = env::args().skip(1);
    let options = arguments.next().context("the first argument is missing: Adam's, as JSON")?;
    let file = arguments.next().context("the second argument is missing: a file to write")?;

    tch::manual_seed(0);
    let vs = VarStore::new(Device::Cpu);
    let padding = EmbeddingOptions { padding_idx: Some(0) };
    let tokens = embedding(vs.root() / "embedding", 50, 19, padding);
    let classes = linear(vs.root() / "linear", 19, 5, LinearOptions::default());
    let mut optimizer = Adam::new(&vs, parse(&options)?)?;

    let count = |n: i64| Tensor::arange(n, (Kind::Int64, Device::Cpu));
    let targets = count(8).remainder(5);
    for step in 0..10 {
        let sentences = (count(8 * 6) * (step + 7)).remainder(50).view([8, 6]);
        let means = tokens.forward(&sentences).mean_dim(1, false, Kind::Float);
        let loss = classes.forward(&means).cross_entropy_for_logits(&targets);
        optimizer.zero_grad()?;
        loss.backward();
        optimizer.step()?;
        println!("step {step}: loss {:.4}", loss.double_value(&[]));
    }

    let mut saved: Vec<_> = vs.variables().into_iter().collect();
    saved.extend(optimizer.state_dict()?.tensors);
    Tensor::write_safetensors(&saved, file)?;
    Ok(())
}

/// Python's keyword arguments of `torch.optim.Adam`.
fn parse(arguments: &str) -> Result<AdamOptions> {
    let arguments: Value = serde_json::from_str(arguments)?;
    let default = AdamOptions::default();
    let number = |value: &Value, default: f64| value.as_f64().unwrap_or(default);
    Ok(AdamOptions {
        lr: number(&arguments["lr"], default.lr),
        betas: (
            number(&arguments["betas"][0], default.betas.0),
            number(&arguments["betas"][1], default.betas.1),
        ),
        eps: number(&arguments["eps"], default.eps),
        weight_decay: number(&arguments["weight_decay"], default.weight_decay),
        decoupled_weight_decay: arguments["decoupled_weight_decay"] == true,
    })
}
