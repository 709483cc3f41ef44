//! Ten steps with parameter groups of several kinds; saves the weights, the optimizer's state and
//! the rates of each group, which equal Python's to the last bit.
//!
//! ```text
//! cargo run -rq -p tch-parallel --example param_groups -- groups.safetensors
//! ```

use anyhow::{Context, Result};
use std::env;
use tch::{Device, Kind, Tensor, nn::Linear, nn::Module, nn::VarStore};
use tch_parallel::amp::{GradScaler, GradScalerOptions};
use tch_parallel::nn::{EmbeddingOptions, LinearOptions, embedding, linear, named_parameters};
use tch_parallel::optim::lr_scheduler::{
    CosineAnnealingLr, ExponentialLr, LrScheduler, OneCycleLr, Schedule, StepLr,
};
use tch_parallel::optim::{
    Adam, AdamOptions, Optimizer, OptimizerState, ParamGroup, Sgd, SgdOptions, clip_grad_norm_,
    clip_grad_value_,
};

const STEPS: i64 = 10;

/// Trains a run's model with an optimizer of its own, whose state it returns.
type Scenario = fn(&mut Run) -> Result<OptimizerState>;

fn main() -> Result<()> {
    let file = env::args().nth(1).context("the first argument is missing: a file to write")?;
    let scenarios: [(&str, Scenario); 7] = [
        ("no_decay", no_decay),
        ("backbone", backbone),
        ("one_cycle", one_cycle),
        ("frozen", frozen),
        ("added", added),
        ("scaled", scaled),
        ("hooked", hooked),
    ];
    let mut saved = Vec::new();
    for (name, scenario) in scenarios {
        let mut run = Run::new();
        let state = scenario(&mut run)?;
        let rates = ("rates".to_owned(), Tensor::from_slice(&run.rates));
        let results = run.vs.variables().into_iter().chain(state.tensors).chain([rates]);
        saved.extend(results.map(|(entry, tensor)| (format!("{name}.{entry}"), tensor)));
    }
    Ok(Tensor::write_safetensors(&saved, file)?)
}

/// AdamW with weight decay for matrices only, along a cosine.
fn no_decay(run: &mut Run) -> Result<OptimizerState> {
    let vs = &run.vs;
    // ANCHOR: no_decay
    let (decay, no_decay) =
        named_parameters(vs).into_iter().partition(|(_, parameter)| parameter.dim() >= 2);
    let options = AdamOptions { lr: 0.01, weight_decay: 0.1, ..AdamOptions::adamw() };
    let mut optimizer = Adam::from_param_groups([
        ParamGroup::new(decay, options),
        ParamGroup::new(no_decay, AdamOptions { weight_decay: 0.0, ..options }),
    ])?;
    // ANCHOR_END: no_decay
    run.train(&mut optimizer, CosineAnnealingLr::new(8))
}

/// SGD with a smaller rate for what lies below the head, by the group numbers of the store.
fn backbone(run: &mut Run) -> Result<OptimizerState> {
    let vs = &run.vs;
    // ANCHOR: backbone
    let options = SgdOptions { lr: 0.5, momentum: 0.9, ..Default::default() };
    let slow = SgdOptions { lr: 0.03, weight_decay: 0.01, ..options };
    let mut optimizer = Sgd::with_group_options(vs, [(0, slow), (1, options)])?;
    // ANCHOR_END: backbone
    run.train(&mut optimizer, StepLr { step_size: 3, gamma: 0.3 })
}

/// One cycle of the rate and of the first beta, to another height in each group.
fn one_cycle(run: &mut Run) -> Result<OptimizerState> {
    let mut optimizer = Adam::new(&run.vs, AdamOptions::adamw())?;
    run.train(&mut optimizer, OneCycleLr::new([0.01, 0.1], STEPS as u64))
}

/// One group without gradients, one with the rate 0, and one that learns, whose options change.
fn frozen(run: &mut Run) -> Result<OptimizerState> {
    let options = AdamOptions { lr: 0.02, ..AdamOptions::adamw() };
    let _ = run.tokens.ws.set_requires_grad(false);
    let mut optimizer = Adam::from_param_groups([
        ParamGroup::new(run.parameters("embedding"), options),
        ParamGroup::new(run.parameters("backbone"), AdamOptions { lr: 0.0, ..options }),
        ParamGroup::new(run.parameters("head"), options),
    ])?;
    for step in 0..STEPS {
        run.step(step, &mut optimizer)?;
        let head = &mut optimizer.param_groups_mut()[2].options;
        head.betas.1 = 0.99;
        head.weight_decay += 0.001;
    }
    Ok(optimizer.state_dict()?)
}

/// The backbone joins the head after half of the steps.
fn added(run: &mut Run) -> Result<OptimizerState> {
    let options = AdamOptions { lr: 0.02, ..Default::default() };
    let mut optimizer = Adam::from_named_parameters(run.parameters("head"), options)?;
    let mut scheduler = LrScheduler::new(&mut optimizer, ExponentialLr { gamma: 0.9 })?;
    for step in 0..STEPS {
        if step == STEPS / 2 {
            let options = AdamOptions { lr: 0.001, betas: (0.8, 0.99), ..options };
            optimizer.add_param_group(ParamGroup::new(run.parameters("backbone"), options))?;
        }
        run.step(step, &mut optimizer)?;
        scheduler.step(&mut optimizer)?;
    }
    Ok(optimizer.state_dict()?)
}

/// Scaled gradients of two groups, clipped together.
fn scaled(run: &mut Run) -> Result<OptimizerState> {
    let options = SgdOptions { lr: 0.5, momentum: 0.9, nesterov: true, ..Default::default() };
    let slow = SgdOptions { lr: 0.1, ..options };
    let mut optimizer = Sgd::with_group_options(&run.vs, [(0, slow), (1, options)])?;
    let mut scaler =
        GradScaler::new(GradScalerOptions { growth_interval: 3, ..Default::default() })?;
    for step in 0..STEPS {
        let loss = run.loss(step);
        optimizer.zero_grad()?;
        scaler.scale(&loss)?.backward();
        scaler.unscale_(&mut optimizer)?;
        clip_grad_norm_(&run.vs.trainable_variables(), 0.05)?;
        scaler.step(&mut optimizer)?;
        scaler.update()?;
    }
    run.rates.push(scaler.get_scale()?);
    Ok(optimizer.state_dict()?)
}

/// Gradients that two hooks clip before each step, and rates that another changes after it.
fn hooked(run: &mut Run) -> Result<OptimizerState> {
    let mut optimizer = Adam::new(&run.vs, AdamOptions::default())?;
    optimizer.register_step_pre_hook(|optimizer| {
        clip_grad_norm_(&optimizer.parameters(), 0.05).map(drop)
    });
    optimizer.register_step_pre_hook(|optimizer| clip_grad_value_(&optimizer.parameters(), 0.01));
    optimizer.register_step_post_hook(|optimizer| {
        optimizer.set_lr(optimizer.lr() * 0.9);
        Ok(())
    });
    (0..STEPS).try_for_each(|step| run.step(step, &mut optimizer))?;
    Ok(optimizer.state_dict()?)
}

/// A model, and the rates with which it is trained.
struct Run {
    vs: VarStore,
    tokens: tch::nn::Embedding,
    backbone: Linear,
    head: Linear,
    rates: Vec<f64>,
}

impl Run {
    /// Always with the same weights. The head is in group 1 of the store.
    fn new() -> Run {
        tch::manual_seed(0);
        let vs = VarStore::new(Device::Cpu);
        let tokens = embedding(vs.root() / "embedding", 50, 19, EmbeddingOptions::default());
        let backbone = linear(vs.root() / "backbone", 19, 16, LinearOptions::default());
        let head = linear(vs.root().set_group(1) / "head", 16, 5, LinearOptions::default());
        Run { vs, tokens, backbone, head, rates: Vec::new() }
    }

    fn step(&mut self, step: i64, optimizer: &mut dyn Optimizer) -> Result<()> {
        let groups = optimizer.param_groups();
        self.rates.extend(groups.iter().map(|group| group.options.lr()));
        self.rates.extend(groups.iter().filter_map(|group| group.options.momentum()));
        let loss = self.loss(step);
        optimizer.zero_grad()?;
        loss.backward();
        Ok(optimizer.step()?)
    }

    /// All steps with a schedule, and the state after them.
    fn train(
        &mut self,
        optimizer: &mut dyn Optimizer,
        schedule: impl Schedule,
    ) -> Result<OptimizerState> {
        let mut scheduler = LrScheduler::new(optimizer, schedule)?;
        for step in 0..STEPS {
            self.step(step, optimizer)?;
            scheduler.step(optimizer)?;
        }
        Ok(optimizer.state_dict()?)
    }

    fn parameters(&self, module: &str) -> Vec<(String, Tensor)> {
        let mut parameters = named_parameters(&self.vs);
        parameters.retain(|(name, _)| name.starts_with(module));
        parameters
    }

    fn loss(&self, step: i64) -> Tensor {
        let count = |n: i64| Tensor::arange(n, (Kind::Int64, Device::Cpu));
        let sentences = (count(8 * 6) * (step + 7)).remainder(50).view([8, 6]);
        let means = self.tokens.forward(&sentences).mean_dim(1, false, Kind::Float);
        let features = self.backbone.forward(&means).tanh();
        self.head.forward(&features).cross_entropy_for_logits(&count(8).remainder(5))
    }
}
