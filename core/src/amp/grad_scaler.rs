//! `torch.amp.GradScaler`.

use crate::distributed::fsdp::shards;
use crate::{Error, Result, check, distributed::ReduceOp, optim::Optimizer};
use c10d_sys::{amp::non_finite_check_and_unscale_, tensor::identity};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use tch::{Kind, Tensor, no_grad};
use tch_parallel_base::{options, tensors::grouped};

options! {
    /// PyTorch's keyword arguments of `GradScaler`, with its defaults.
    #[derive(Debug, Clone, Copy, PartialEq)]
    pub struct GradScalerOptions {
        /// The initial scale of losses.
        pub init_scale: f64 = 65536.0,
        /// The factor by which the scale grows after [`growth_interval`](Self::growth_interval) steps; above 1.
        pub growth_factor: f64 = 2.0,
        /// The factor by which the scale shrinks after a skipped step; below 1.
        pub backoff_factor: f64 = 0.5,
        /// The number of consecutive steps, none of them skipped, after which the scale grows.
        pub growth_interval: i64 = 2000,
        /// Whether to scale at all, so that one program can run with and without.
        pub enabled: bool = true,
    }
}

/// Multiplies losses so that 16-bit gradients do not underflow, and divides the gradients again
/// before they are used: `torch.amp.GradScaler`. There is an example in the [module](super).
///
/// If a gradient has overflowed, the step is skipped and the scale shrinks. Ranks with
/// [`DistributedDataParallel`](crate::distributed::DistributedDataParallel) reach the same verdict without
/// communication: each checks gradients that are averaged over all ranks, and one rank's infinity or NaN makes the
/// average infinite or NaN. The exception are gradients that are not averaged: see
/// [`PostLocalSgdOptimizer`](crate::optim::PostLocalSgdOptimizer) and [`DiLoCo`](crate::optim::DiLoCo).
#[derive(Debug)]
pub struct GradScaler {
    enabled: bool,
    state: GradScalerState,
    /// The scale and the growth tracker, on the first loss's device, so that computing with them does not wait for it.
    tensors: Option<(Tensor, Tensor)>,
    /// The optimizers seen since the last update, by the identity of their first parameter.
    optimizers: HashMap<usize, Checked>,
}

/// What [`GradScaler::state_dict`] returns, with PyTorch's names.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct GradScalerState {
    /// The factor of losses.
    pub scale: f64,
    /// The factor by which it grows.
    pub growth_factor: f64,
    /// The factor by which it shrinks.
    pub backoff_factor: f64,
    /// The number of steps after which it grows.
    pub growth_interval: i64,
    /// The number of steps since it grew, or since one was skipped.
    #[serde(rename = "_growth_tracker")]
    pub growth_tracker: i64,
}

/// An optimizer whose gradients have been unscaled.
#[derive(Debug)]
struct Checked {
    /// For the gradients of each device and kind: 1 if one of them is infinite or NaN.
    found_inf: Vec<Tensor>,
    stepped: bool,
}

impl GradScaler {
    /// A scaler that starts with `init_scale`.
    ///
    /// # Errors
    /// [`Error::Argument`] for factors that PyTorch refuses, infinity and NaN. Nothing is refused if scaling is off.
    pub fn new(options: GradScalerOptions) -> Result<Self> {
        let GradScalerOptions { init_scale, growth_factor, backoff_factor, enabled, .. } = options;
        // It is an f32 on the device.
        let is_finite = !enabled || (init_scale as f32).is_finite();
        check(is_finite, "init_scale", init_scale, "a finite 32-bit number")?;
        let grows = !enabled || (growth_factor.is_finite() && growth_factor > 1.0);
        check(grows, "growth_factor", growth_factor, "a finite number above 1")?;
        let shrinks = !enabled || (backoff_factor.is_finite() && backoff_factor < 1.0);
        check(shrinks, "backoff_factor", backoff_factor, "a finite number below 1")?;
        let state = GradScalerState {
            scale: init_scale,
            growth_factor,
            backoff_factor,
            growth_interval: options.growth_interval,
            growth_tracker: 0,
        };
        Ok(GradScaler { enabled, state, tensors: None, optimizers: HashMap::new() })
    }

    /// The loss multiplied by the scale, for the backward pass. `scaler.scale(loss)`
    ///
    /// # Errors
    /// [`Error::Tensor`] for a loss that cannot be multiplied.
    pub fn scale(&mut self, loss: &Tensor) -> Result<Tensor> {
        if !self.enabled {
            return Ok(loss.shallow_clone());
        }
        let device = loss.device();
        let (scale, _) = match &self.tensors {
            Some(tensors) => tensors,
            None => {
                let scale = Tensor::from(self.state.scale).f_to_kind(Kind::Float)?;
                let tracker = Tensor::from(self.state.growth_tracker).f_to_kind(Kind::Int)?;
                self.tensors.insert((scale.f_to(device)?, tracker.f_to(device)?))
            }
        };
        Ok(loss.f_mul(&scale.f_to(device)?)?)
    }

    /// Divides the optimizer's gradients by the scale, so that you can [clip](crate::optim::clip_grad_norm_) or inspect
    /// them before [`step`](Self::step), which otherwise does this itself.
    ///
    /// # Errors
    /// [`Error::Argument`] if called before [`scale`](Self::scale), or twice before
    /// [`update`](Self::update); if there are no gradients, or 16-bit ones: parameters must be
    /// 32-bit. For shards of [`FullyShard`](crate::distributed::FullyShard), this is a collective.
    pub fn unscale_(&mut self, optimizer: &mut dyn Optimizer) -> Result<()> {
        if !self.enabled {
            return Ok(());
        }
        let (scale, _) = self.tensors.as_ref().ok_or_else(|| not_scaled("unscale_"))?;
        let parameters = optimizer.parameters();
        let key = key(&parameters);
        if let Some(checked) = self.optimizers.get(&key) {
            let found = if checked.stepped { "called after step" } else { "called twice" };
            return Err(Error::argument("unscale_", found, "called once before update"));
        }
        let group = shards::group_of(&parameters)?;
        let mut found_inf = no_grad(|| divide(&parameters, scale))?;
        if let Some(group) = group {
            // Either all ranks step or none does.
            found_inf.iter_mut().try_for_each(|found| group.all_reduce(found, ReduceOp::Max))?;
        }
        self.optimizers.insert(key, Checked { found_inf, stepped: false });
        Ok(())
    }

    /// The optimizer's step, unless a gradient is infinite or NaN. Returns whether it was made.
    ///
    /// # Errors
    /// Those of [`unscale_`](Self::unscale_), and for a second step before [`update`](Self::update).
    pub fn step(&mut self, optimizer: &mut dyn Optimizer) -> Result<bool> {
        if !self.enabled {
            return optimizer.step().map(|()| true);
        }
        let key = key(&optimizer.parameters());
        if !self.optimizers.contains_key(&key) {
            self.unscale_(optimizer)?;
        }
        let mut finite = true;
        if let Some(checked) = self.optimizers.get_mut(&key) {
            check(!checked.stepped, "step", "called twice", "called once before update")?;
            for found in &checked.found_inf {
                finite &= found.f_double_value(&[])? == 0.0;
            }
            checked.stepped = true;
        }
        if finite {
            optimizer.step()?;
        }
        Ok(finite)
    }

    /// Shrinks the scale if a step was skipped, and grows it if none was for long. Call this after each iteration.
    ///
    /// # Errors
    /// [`Error::Argument`] if no step was attempted since the last update.
    pub fn update(&mut self) -> Result<()> {
        if !self.enabled {
            return Ok(());
        }
        let (scale, growth_tracker) = self.tensors.as_mut().ok_or_else(|| not_scaled("update"))?;
        let checked = std::mem::take(&mut self.optimizers).into_values();
        let found_inf: Vec<_> = checked.flat_map(|checked| checked.found_inf).collect();
        check(!found_inf.is_empty(), "update", "called without a step", "called after step")?;
        let combined = found_inf.iter().try_fold(scale.f_zeros_like()?, |combined, found| {
            combined.f_add(&found.f_to(scale.device())?)
        })?;
        let _ = scale.f_internal_amp_update_scale_(
            growth_tracker,
            &combined,
            self.state.growth_factor,
            self.state.backoff_factor,
            self.state.growth_interval,
        )?;
        Ok(())
    }

    /// Forgets what was unscaled since the last [`update`](Self::update), for a step that is undone.
    pub(crate) fn forget_step(&mut self) {
        self.optimizers.clear();
    }

    /// The current scale: `get_scale()`. 1 if scaling is off. Waits for a GPU.
    ///
    /// # Errors
    /// [`Error::Tensor`] if the scale cannot be read from its device.
    pub fn get_scale(&self) -> Result<f64> {
        Ok(self.state_dict()?.map_or(1.0, |state| state.scale))
    }

    /// What the next iteration depends on; `None` if scaling is off. Call this after [`update`](Self::update).
    pub fn state_dict(&self) -> Result<Option<GradScalerState>> {
        if !self.enabled {
            return Ok(None);
        }
        let mut state = self.state;
        if let Some((scale, growth_tracker)) = &self.tensors {
            state.scale = scale.f_double_value(&[])?;
            state.growth_tracker = growth_tracker.f_int64_value(&[])?;
        }
        Ok(Some(state))
    }

    /// Restores a state that [`state_dict`](Self::state_dict) returned; does nothing if scaling is off.
    pub fn load_state_dict(&mut self, state: &GradScalerState) {
        if self.enabled {
            self.state = *state;
            self.tensors = None;
        }
    }
}

/// Divides all gradients, together for each device and kind. Returns what was found for each.
fn divide(parameters: &[Tensor], scale: &Tensor) -> Result<Vec<Tensor>> {
    let mut gradients = Vec::new();
    for gradient in parameters.iter().map(Tensor::grad).filter(Tensor::defined) {
        let expected = "of Float: parameters stay in 32 bits under autocast";
        check(gradient.kind() != Kind::Half, "a gradient", "of Half", expected)?;
        gradients.push(if gradient.is_sparse() { gradient.f_internal_values()? } else { gradient });
    }
    let expected = "stepped after a backward pass";
    check(!gradients.is_empty(), "the optimizer", "without a gradient", expected)?;
    // In 64 bits, as in PyTorch: some compilers approximate the reciprocal of an f32.
    let inverse = scale.f_to_kind(Kind::Double)?.f_reciprocal()?.f_to_kind(Kind::Float)?;
    let mut all_found = Vec::new();
    for mut gradients in grouped(gradients, |gradient| (gradient.device(), gradient.kind())) {
        let device = gradients[0].device();
        let mut found = Tensor::f_zeros([0; 0], (Kind::Float, device))?;
        let inverse = inverse.f_to(device)?;
        non_finite_check_and_unscale_(&mut gradients, &mut found, &inverse)
            .map_err(Error::engine("unscale_"))?;
        all_found.push(found);
    }
    Ok(all_found)
}

/// What identifies an optimizer.
fn key(parameters: &[Tensor]) -> usize {
    parameters.first().map_or(0, identity)
}

fn not_scaled(what: &str) -> Error {
    Error::argument(what, "called before scale", "called after the backward pass of a scaled loss")
}
