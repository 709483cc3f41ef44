//! The learning rates that schedules give, one for each epoch; they equal PyTorch's to the last bit.
//! A schedule is described by PyTorch's name and keyword arguments, a function by a list of its values.
//!
//! ```text
//! cargo run -rq -p tch-parallel --example lr_schedules -- 100 0.1 '{"StepLR": {"step_size": 30}}'
//! ```

use std::env;

use anyhow::{Context, Result, bail};
use serde_json::Value;
use tch_parallel::optim::lr_scheduler::{
    CosineAnnealingLr, ExponentialLr, LambdaLr, LinearLr, LrScheduler, MultiStepLr, Schedule,
    SequentialLr, StepLr,
};
use tch_parallel::optim::{Optimizer, Sgd, SgdOptions};

fn main() -> Result<()> {
    let mut arguments = env::args().skip(1);
    let mut next = |what| arguments.next().with_context(|| format!("{what} is missing"));
    let epochs = next("the number of epochs")?.parse()?;
    let lr = next("the learning rate")?.parse()?;
    for description in arguments {
        let schedule = parse(&serde_json::from_str(&description)?)?;
        println!("{}", serde_json::to_string(&rates(epochs, lr, schedule)?)?);
    }
    Ok(())
}

fn rates(epochs: usize, lr: f64, schedule: Box<dyn Schedule>) -> Result<Vec<f64>> {
    // Whatever is optimized, the rates are the same.
    let mut optimizer =
        Sgd::from_named_parameters(vec![], SgdOptions { lr, ..Default::default() })?;
    let mut scheduler = LrScheduler::new(&mut optimizer, schedule)?;
    let mut rates = Vec::new();
    for _epoch in 0..epochs {
        rates.push(optimizer.lr());
        optimizer.step()?;
        scheduler.step(&mut optimizer);
    }
    Ok(rates)
}

fn parse(description: &Value) -> Result<Box<dyn Schedule>> {
    let schedules = description.as_object().context("a schedule is {NAME: ARGUMENTS}")?;
    let (name, arguments) = schedules.iter().next().context("a schedule has a name")?;
    let number = |name: &str, default: f64| arguments[name].as_f64().unwrap_or(default);
    let count = |name: &str| arguments[name].as_u64().with_context(|| format!("no {name}"));
    let milestones = || -> Result<Vec<u64>> {
        serde_json::from_value(arguments["milestones"].clone()).context("no milestones")
    };
    Ok(match name.as_str() {
        "StepLR" => {
            let default = StepLr::new(count("step_size")?);
            Box::new(StepLr { gamma: number("gamma", default.gamma), ..default })
        }
        "MultiStepLR" => {
            let default = MultiStepLr::new(milestones()?);
            Box::new(MultiStepLr { gamma: number("gamma", default.gamma), ..default })
        }
        "ExponentialLR" => {
            Box::new(ExponentialLr { gamma: arguments["gamma"].as_f64().context("no gamma")? })
        }
        "LambdaLR" => {
            let values: Vec<f64> = serde_json::from_value(arguments["lr_lambda"].clone())?;
            // After the last epoch of the list, its first again.
            Box::new(LambdaLr::new(move |epoch| values[epoch as usize % values.len()]))
        }
        "LinearLR" => {
            let default = LinearLr::default();
            Box::new(LinearLr {
                start_factor: number("start_factor", default.start_factor),
                end_factor: number("end_factor", default.end_factor),
                total_iters: count("total_iters").unwrap_or(default.total_iters),
            })
        }
        "CosineAnnealingLR" => {
            let default = CosineAnnealingLr::new(count("T_max")?);
            Box::new(CosineAnnealingLr { eta_min: number("eta_min", default.eta_min), ..default })
        }
        "SequentialLR" => {
            let parts = arguments["schedulers"].as_array().context("no schedulers")?;
            let schedules = parts.iter().map(parse).collect::<Result<_>>()?;
            Box::new(SequentialLr { schedules, milestones: milestones()? })
        }
        other => bail!("there is no schedule {other}"),
    })
}
