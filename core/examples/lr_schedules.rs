//! The learning rates and momenta that schedules give, for each epoch and parameter group; they equal PyTorch's to the
//! last bit, all at once and with an interruption. A schedule is described by PyTorch's name and keyword arguments, a
//! function by a list of its values. Several schedules of one optimizer are a list, each with the epoch in which it is
//! created.
//!
//! ```text
//! cargo run -rq -p tch-parallel --example lr_schedules -- 100 SGD '[0.1]' '{"StepLR": {"step_size": 30}}'
//! ```

use anyhow::{Context, Result, bail, ensure};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::env;
use tch_parallel::optim::lr_scheduler::{
    AnnealStrategy, ChainedScheduler, ConstantLr, CosineAnnealingLr, CosineAnnealingWarmRestarts,
    CyclicLr, CyclicMode, ExponentialLr, LambdaLr, LinearLr, LrLambda, LrScheduler, MultiStepLr,
    MultiplicativeLr, OneCycleLr, PerGroup, PlateauMode, PolynomialLr, ReduceLrOnPlateau,
    ReduceLrOnPlateauOptions, Schedule, Scheduler, SequentialLr, StepLr, SwaLr, ThresholdMode,
};
use tch_parallel::optim::{Adam, AdamOptions, Optimizer, ParamGroup, Sgd, SgdOptions};

fn main() -> Result<()> {
    let mut arguments = env::args().skip(1);
    let mut next = |what| arguments.next().with_context(|| format!("{what} is missing"));
    let epochs = next("the number of epochs")?.parse()?;
    let optimizer = next("the optimizer")?;
    let lrs: Vec<f64> = serde_json::from_str(&next("the list of learning rates")?)?;
    for description in arguments {
        let description = serde_json::from_str(&description)?;
        let rates = |interrupted_at| {
            rates(epochs, || build(&optimizer, &lrs), &description, interrupted_at)
        };
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
    let groups = lrs.iter();
    Ok(match name {
        "SGD" => Box::new(Sgd::from_param_groups(
            groups.map(|&lr| ParamGroup::new(vec![], SgdOptions { lr, ..Default::default() })),
        )?),
        "Adam" => Box::new(Adam::from_param_groups(
            groups.map(|&lr| ParamGroup::new(vec![], AdamOptions { lr, ..Default::default() })),
        )?),
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
            optimizer = build()?;
            for (description, stepper) in &mut steppers {
                let interrupted = stepper.scheduler();
                let text = serde_json::to_string(&interrupted.state_dict()?)?;
                let mut resumed = Stepper::new(&mut *optimizer, description)?;
                resumed.scheduler().load_state_dict(&serde_json::from_str(&text)?)?;
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
                let scheduler = ReduceLrOnPlateau::new(optimizer, plateau(&arguments)?)?;
                Stepper::Plateau(scheduler, arguments.need("metrics")?)
            }
            "CosineAnnealingWarmRestarts" => {
                let scheduler = LrScheduler::new(optimizer, warm_restarts(&arguments)?)?;
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

/// The defaults, with PyTorch's keyword arguments in their place.
macro_rules! with {
    (
        $arguments:ident, $defaults:expr, [$($name:ident),*]
        $(, per group: [$($of_groups:ident),*])?
    ) => {{
        let mut given = $defaults;
        $(given.$name = $arguments.get(stringify!($name))?.unwrap_or(given.$name);)*
        $($(given.$of_groups = $arguments.per_group(stringify!($of_groups), given.$of_groups)?;)*)?
        given
    }};
}

fn schedule(description: &Value) -> Result<Box<dyn Schedule>> {
    let (name, arguments) = Arguments::of(description)?;
    let schedules = || -> Result<Vec<Box<dyn Schedule>>> {
        arguments.need::<Vec<Value>>("schedulers")?.iter().map(schedule).collect()
    };
    Ok(match name {
        "StepLR" => Box::new(with!(arguments, StepLr::new(arguments.need("step_size")?), [gamma])),
        "MultiStepLR" => {
            let milestones: Vec<u64> = arguments.need("milestones")?;
            Box::new(with!(arguments, MultiStepLr::new(milestones), [gamma]))
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
        "SWALR" => Box::new(SwaLr {
            anneal_strategy: arguments.anneal_strategy(),
            ..with!(arguments, SwaLr::new(0.0), [anneal_epochs], per group: [swa_lr])
        }),
        "PolynomialLR" => Box::new(with!(arguments, PolynomialLr::default(), [total_iters, power])),
        "ConstantLR" => Box::new(with!(arguments, ConstantLr::default(), [factor, total_iters])),
        "LinearLR" => {
            Box::new(with!(arguments, LinearLr::default(), [start_factor, end_factor, total_iters]))
        }
        "CosineAnnealingLR" => {
            Box::new(with!(arguments, CosineAnnealingLr::new(arguments.need("T_max")?), [eta_min]))
        }
        "CosineAnnealingWarmRestarts" => Box::new(warm_restarts(&arguments)?),
        "OneCycleLR" => {
            let max_lr = arguments.per_group("max_lr", 0.0)?;
            Box::new(OneCycleLr {
                anneal_strategy: arguments.anneal_strategy(),
                ..with!(
                    arguments,
                    OneCycleLr::new(max_lr, arguments.need("total_steps")?),
                    [pct_start, cycle_momentum, div_factor, final_div_factor, three_phase],
                    per group: [base_momentum, max_momentum]
                )
            })
        }
        "CyclicLR" => {
            let scale_fn = || anyhow::Ok(function(arguments.need("scale_fn")?));
            let mode = arguments.0["mode"].as_str();
            Box::new(CyclicLr {
                step_size_down: arguments.get("step_size_down")?,
                mode: match mode.or(arguments.0["scale_mode"].as_str()) {
                    Some("triangular2") => CyclicMode::Triangular2,
                    Some("exp_range") => CyclicMode::ExpRange { gamma: arguments.need("gamma")? },
                    Some("cycle") => CyclicMode::Cycle(scale_fn()?),
                    Some("iterations") => CyclicMode::Iterations(scale_fn()?),
                    _ => CyclicMode::Triangular,
                },
                ..with!(
                    arguments,
                    CyclicLr::new(0.0, 0.0),
                    [step_size_up, cycle_momentum],
                    per group: [base_lr, max_lr, base_momentum, max_momentum]
                )
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

fn warm_restarts(arguments: &Arguments<'_>) -> Result<CosineAnnealingWarmRestarts> {
    let default = CosineAnnealingWarmRestarts::new(arguments.need("T_0")?);
    let t_mult = arguments.get("T_mult")?.unwrap_or(default.t_mult);
    Ok(with!(arguments, CosineAnnealingWarmRestarts { t_mult, ..default }, [eta_min]))
}

fn plateau(arguments: &Arguments<'_>) -> Result<ReduceLrOnPlateauOptions> {
    let is = |name: &str, value: &str| arguments.0[name] == value;
    Ok(ReduceLrOnPlateauOptions {
        mode: if is("mode", "max") { PlateauMode::Max } else { PlateauMode::Min },
        threshold_mode: match is("threshold_mode", "abs") {
            true => ThresholdMode::Abs,
            false => ThresholdMode::Rel,
        },
        ..with!(
            arguments,
            ReduceLrOnPlateauOptions::default(),
            [factor, patience, threshold, cooldown, eps],
            per group: [min_lr]
        )
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

    fn anneal_strategy(&self) -> AnnealStrategy {
        let is_linear = self.0["anneal_strategy"] == "linear";
        if is_linear { AnnealStrategy::Linear } else { AnnealStrategy::Cos }
    }

    fn per_group(&self, name: &str, default: impl Into<PerGroup>) -> Result<PerGroup> {
        Ok(match &self.0[name] {
            Value::Null => default.into(),
            Value::Number(value) => value.as_f64().context("a number")?.into(),
            _ => self.need::<Vec<f64>>(name)?.into(),
        })
    }
}
