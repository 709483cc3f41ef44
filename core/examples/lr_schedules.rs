//! The learning rates and momenta that schedules give, for each epoch and parameter group; they equal PyTorch's to the
//! last bit, all at once and with an interruption. A schedule is described by PyTorch's name and keyword arguments, a
//! function by a list of its values. Several schedules of one optimizer are a list, each with the epoch in which it is
//! created.
//!
//! ```text
//! cargo run -rq -p tch-parallel --example lr_schedules -- 100 SGD '[0.1]' '{"StepLR": {"step_size": 30}}'
//! ```

use anyhow::{Context, Result, bail, ensure};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use std::env;
use tch_parallel::optim::lr_scheduler::{
    ChainedScheduler, ConstantLr, CosineAnnealingLr, CosineAnnealingWarmRestarts, CyclicLr,
    CyclicMode, ExponentialLr, LambdaLr, LinearLr, LrLambda, LrScheduler, MultiStepLr,
    MultiplicativeLr, OneCycleLr, PerGroup, PolynomialLr, ReduceLrOnPlateau,
    ReduceLrOnPlateauOptions, Schedule, Scheduler, SequentialLr, StepLr, SwaLr,
};
use tch_parallel::optim::{Adam, AdamOptions, Optimizer, ParamGroup, Sgd, SgdOptions};

fn main() -> Result<()> {
    let mut arguments = env::args().skip(1);
    let mut next = |what| arguments.next().with_context(|| format!("{what} is missing"));
    let epochs = next("the number of epochs")?.parse()?;
    let optimizer = next("the optimizer")?;
    let lrs: Vec<f64> = serde_json::from_str(&next("the list of learning rates")?)?;
    let build = || build(&optimizer, &lrs);
    for description in arguments {
        let description = serde_json::from_str(&description)?;
        let rates = |interrupted_at| rates(epochs, build, &description, interrupted_at);
        let whole = rates(None)?;
        for epoch in [0, 1, 7, 40] {
            let same = rates(Some(epoch))? == whole;
            ensure!(same, "an interruption in epoch {epoch} changes {description}");
        }
        println!("{}", serde_json::to_string(&whole)?);
    }
    Ok(())
}

/// An optimizer of nothing: whatever is optimized, the rates are the same.
fn build(name: &str, lrs: &[f64]) -> Result<Box<dyn Optimizer>> {
    let sgd = |&lr: &f64| ParamGroup::new(vec![], SgdOptions { lr, ..Default::default() });
    let adam = |&lr: &f64| ParamGroup::new(vec![], AdamOptions { lr, ..Default::default() });
    Ok(match name {
        "SGD" => Box::new(Sgd::from_param_groups(lrs.iter().map(sgd))?),
        "Adam" => Box::new(Adam::from_param_groups(lrs.iter().map(adam))?),
        other => bail!("there is no optimizer {other}"),
    })
}

type Rates = (f64, Option<f64>);

/// By epoch and parameter group. After an interruption, everything is built anew and continues with the saved state.
fn rates(
    epochs: usize,
    build: impl Fn() -> Result<Box<dyn Optimizer>>,
    description: &Value,
    interrupted_at: Option<usize>,
) -> Result<Vec<Vec<Rates>>> {
    let schedules: Vec<(usize, Value)> = match description {
        Value::Array(_) => serde_json::from_value(description.clone())?,
        _ => vec![(0, description.clone())],
    };
    let mut optimizer = build()?;
    let mut steppers = Vec::new();
    let mut rates = Vec::new();
    for epoch in 0..epochs {
        for (_, description) in schedules.iter().filter(|(created, _)| *created == epoch) {
            steppers.push((description, Stepper::new(&mut *optimizer, description)?));
        }
        if interrupted_at == Some(epoch) {
            let state = optimizer.state_dict()?;
            let lrs: Vec<_> = optimizer.param_groups().iter().map(|it| it.options.lr()).collect();
            optimizer = build()?;
            for (description, stepper) in &mut steppers {
                let interrupted = stepper.scheduler();
                let text = serde_json::to_string(&interrupted.state_dict()?)?;
                let mut resumed = Stepper::new(&mut *optimizer, description)?;
                resumed.scheduler().load_state_dict(&serde_json::from_str(&text)?)?;
                ensure!(schedules.len() > 1 || interrupted.last_lr() == lrs, "{text}");
                ensure!(resumed.scheduler().last_lr() == interrupted.last_lr(), "{text} differs");
                *stepper = resumed;
            }
            optimizer.load_state_dict(&state)?;
        }
        let groups = optimizer.param_groups().into_iter();
        rates.push(groups.map(|group| (group.options.lr(), group.options.momentum())).collect());
        optimizer.step()?;
        steppers.iter_mut().try_for_each(|(_, stepper)| stepper.step(&mut *optimizer, epoch))?;
    }
    Ok(rates)
}

/// A scheduler, with a list of metrics or of epochs if its `step` takes one.
enum Stepper {
    Plateau(ReduceLrOnPlateau, Vec<Option<f64>>),
    WarmRestarts(LrScheduler<CosineAnnealingWarmRestarts>, Vec<Option<f64>>),
    Other(LrScheduler),
}

impl Stepper {
    fn new(optimizer: &mut dyn Optimizer, description: &Value) -> Result<Self> {
        let (name, arguments) = Arguments::of(description)?;
        Ok(match name {
            "ReduceLROnPlateau" => {
                let options = arguments.with_defaults(ReduceLrOnPlateauOptions::default())?;
                let scheduler = ReduceLrOnPlateau::new(optimizer, options)?;
                Stepper::Plateau(scheduler, arguments.need("metrics")?)
            }
            "CosineAnnealingWarmRestarts" => {
                let scheduler = LrScheduler::new(optimizer, arguments.warm_restarts()?)?;
                Stepper::WarmRestarts(scheduler, arguments.get("epochs")?.unwrap_or_default())
            }
            _ => Stepper::Other(LrScheduler::new(optimizer, schedule(description)?)?),
        })
    }

    fn step(&mut self, optimizer: &mut dyn Optimizer, epoch: usize) -> tch_parallel::Result<()> {
        match self {
            Stepper::Plateau(scheduler, metrics) => {
                // JSON has no infinity.
                let metric = metrics[epoch % metrics.len()].unwrap_or(f64::NEG_INFINITY);
                scheduler.step(optimizer, metric)
            }
            Stepper::WarmRestarts(scheduler, epochs) => {
                match epochs.get(epoch).copied().flatten() {
                    Some(epoch) => scheduler.step_to(optimizer, epoch),
                    None => scheduler.step(optimizer),
                }
            }
            Stepper::Other(scheduler) => scheduler.step(optimizer),
        }
    }

    fn scheduler(&mut self) -> &mut dyn Scheduler {
        match self {
            Stepper::Plateau(scheduler, _) => scheduler,
            Stepper::WarmRestarts(scheduler, _) => scheduler,
            Stepper::Other(scheduler) => scheduler,
        }
    }
}

fn schedule(description: &Value) -> Result<Box<dyn Schedule>> {
    let (name, arguments) = Arguments::of(description)?;
    let schedules = || -> Result<Vec<Box<dyn Schedule>>> {
        arguments.need::<Vec<Value>>("schedulers")?.iter().map(schedule).collect()
    };
    Ok(match name {
        "StepLR" => Box::new(arguments.with_defaults(StepLr::new(arguments.need("step_size")?))?),
        "MultiStepLR" => {
            let milestones: Vec<u64> = arguments.need("milestones")?;
            Box::new(arguments.with_defaults(MultiStepLr::new(milestones))?)
        }
        "ExponentialLR" => Box::new(ExponentialLr { gamma: arguments.need("gamma")? }),
        "LambdaLR" => Box::new(match arguments.functions()? {
            Some(functions) => LambdaLr::per_group(functions),
            None => LambdaLr::new(function(arguments.need("lr_lambda")?)),
        }),
        "MultiplicativeLR" => Box::new(match arguments.functions()? {
            Some(functions) => MultiplicativeLr::per_group(functions),
            None => MultiplicativeLr::new(function(arguments.need("lr_lambda")?)),
        }),
        "SWALR" => Box::new(arguments.with_defaults(SwaLr::new(arguments.per_group("swa_lr")?))?),
        "PolynomialLR" => Box::new(arguments.with_defaults(PolynomialLr::default())?),
        "ConstantLR" => Box::new(arguments.with_defaults(ConstantLr::default())?),
        "LinearLR" => Box::new(arguments.with_defaults(LinearLr::default())?),
        "CosineAnnealingLR" => {
            Box::new(arguments.with_defaults(CosineAnnealingLr::new(arguments.need("T_max")?))?)
        }
        "CosineAnnealingWarmRestarts" => Box::new(arguments.warm_restarts()?),
        "OneCycleLR" => {
            let max_lr = arguments.per_group("max_lr")?;
            let total_steps = arguments.need("total_steps")?;
            Box::new(arguments.with_defaults(OneCycleLr::new(max_lr, total_steps))?)
        }
        "CyclicLR" => {
            let scale_fn = || anyhow::Ok(function(arguments.need("scale_fn")?));
            let mode = arguments.0["mode"].as_str();
            let default =
                CyclicLr::new(arguments.per_group("base_lr")?, arguments.per_group("max_lr")?);
            Box::new(CyclicLr {
                step_size_up: arguments.get("step_size_up")?.unwrap_or(default.step_size_up),
                step_size_down: arguments.get("step_size_down")?,
                mode: match mode.or(arguments.0["scale_mode"].as_str()) {
                    Some("triangular2") => CyclicMode::Triangular2,
                    Some("exp_range") => CyclicMode::ExpRange { gamma: arguments.need("gamma")? },
                    Some("cycle") => CyclicMode::Cycle(scale_fn()?),
                    Some("iterations") => CyclicMode::Iterations(scale_fn()?),
                    _ => CyclicMode::Triangular,
                },
                cycle_momentum: arguments.get("cycle_momentum")?.unwrap_or(default.cycle_momentum),
                base_momentum: arguments.get("base_momentum")?.unwrap_or(default.base_momentum),
                max_momentum: arguments.get("max_momentum")?.unwrap_or(default.max_momentum),
                ..default
            })
        }
        "SequentialLR" => Box::new(SequentialLr {
            schedules: schedules()?,
            milestones: arguments.need("milestones")?,
        }),
        "ChainedScheduler" => Box::new(ChainedScheduler { schedules: schedules()? }),
        other => bail!("there is no schedule {other}"),
    })
}

/// After the last value of the list, its first again.
fn function(values: Vec<f64>) -> LrLambda {
    Box::new(move |argument| values[argument as usize % values.len()])
}

struct Arguments<'a>(&'a Value);

impl<'a> Arguments<'a> {
    fn of(description: &'a Value) -> Result<(&'a str, Self)> {
        let schedules = description.as_object().context("a schedule is {NAME: ARGUMENTS}")?;
        let (name, arguments) = schedules.iter().next().context("a schedule has a name")?;
        Ok((name, Arguments(arguments)))
    }

    fn get<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>> {
        let value = self.0.get(name).cloned();
        value.map(serde_json::from_value).transpose().with_context(|| name.to_owned())
    }

    fn need<T: DeserializeOwned>(&self, name: &str) -> Result<T> {
        self.get(name)?.with_context(|| format!("no {name}"))
    }

    /// The functions of `lr_lambda`, if there is one for each group.
    fn functions(&self) -> Result<Option<Vec<LrLambda>>> {
        if !self.0["lr_lambda"][0].is_array() {
            return Ok(None);
        }
        let values: Vec<_> = self.need("lr_lambda")?;
        Ok(Some(values.into_iter().map(function).collect()))
    }

    fn per_group(&self, name: &str) -> Result<PerGroup> {
        self.need(name)
    }

    /// A schedule with PyTorch's keyword arguments in the place of defaults.
    fn with_defaults<S: Serialize + DeserializeOwned>(&self, defaults: S) -> Result<S> {
        let mut all = json!(defaults);
        let given = self.0.as_object().into_iter().flatten();
        given.for_each(|(name, value)| all[name] = value.clone());
        Ok(serde_json::from_value(all)?)
    }

    fn warm_restarts(&self) -> Result<CosineAnnealingWarmRestarts> {
        self.with_defaults(CosineAnnealingWarmRestarts::new(self.need("T_0")?))
    }
}
