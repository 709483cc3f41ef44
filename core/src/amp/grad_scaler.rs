//! `torch.amp.GradScaler`.

use crate::optim::Optimizer;
use crate::{Error, Result};
use c10d_sys::amp::non_finite_check_and_unscale_;
use c10d_sys::tensor::identity;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use tch::{Device, Kind, Tensor, no_grad};

/// PyTorch's keyword arguments of `GradScaler`, with its defaults.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GradScalerOptions {
    /// What losses are multiplied by at first.
    pub init_scale: f64,
    /// By what the scale grows after [`growth_interval`](Self::growth_interval) steps; above 1.
    pub growth_factor: f64,
    /// By what the scale shrinks after a step that was left out; below 1.
    pub backoff_factor: f64,
    /// How many steps must be made, without one being left out, for the scale to grow.
    pub growth_interval: i64,
    /// Whether to scale at all: one program can then run with and without.
    pub enabled: bool,
}

impl Default for GradScalerOptions {
    fn default() -> Self {
        GradScalerOptions {
            init_scale: 65536.0,
            growth_factor: 2.0,
            backoff_factor: 0.5,
            growth_interval: 2000,
            enabled: true,
        }
    }
}

/// Multiplies losses, so that gradients in 16 bits do not vanish, and divides the gradients again
/// before they are used: `torch.amp.GradScaler`. There is an example at the [module](super).
///
/// Where a gradient has overflowed, the step is left out and the scale shrinks. Ranks with
/// [`DistributedDataParallel`](crate::distributed::DistributedDataParallel) come to the same verdict
/// without a word to each other: the gradients that each of them looks at are averages over all
/// ranks, and what is not finite on one makes the average not finite.
#[derive(Debug)]
pub struct GradScaler {
    enabled: bool,
    state: GradScalerState,
    /// The scale and the growth tracker, on the device of the first loss: whoever computes with
    /// them need not wait for that device.
    tensors: Option<(Tensor, Tensor)>,
    /// By the identity of their first parameter, those that have come by since the last update.
    optimizers: HashMap<usize, Checked>,
}

/// What [`GradScaler::state_dict`] gives, under PyTorch's names.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct GradScalerState {
    /// What losses are multiplied by.
    pub scale: f64,
    /// By what it grows.
    pub growth_factor: f64,
    /// By what it shrinks.
    pub backoff_factor: f64,
    /// After how many steps it grows.
    pub growth_interval: i64,
    /// How many steps have been made since it grew, or since one was left out.
    #[serde(rename = "_growth_tracker")]
    pub growth_tracker: i64,
}

/// An optimizer whose gradients have been divided.
#[derive(Debug)]
struct Checked {
    /// For the gradients of each device and kind: 1 if one of them is not finite.
    found_inf: Vec<Tensor>,
    stepped: bool,
}

impl GradScaler {
    /// A scaler that begins with `init_scale`.
    ///
    /// # Errors
    /// [`Error::Argument`] for factors that PyTorch refuses as well, and for a scale or a factor that
    /// is infinite or no number.
    pub fn new(options: GradScalerOptions) -> Result<Self> {
        let GradScalerOptions {
            init_scale,
            growth_factor,
            backoff_factor,
            growth_interval,
            enabled,
        } = options;
        // It is an f32 on the device.
        if !(init_scale as f32).is_finite() {
            return Err(refused("init_scale", init_scale.to_string(), "a finite 32-bit number"));
        }
        if !growth_factor.is_finite() || growth_factor <= 1.0 {
            return Err(refused(
                "growth_factor",
                growth_factor.to_string(),
                "a finite number above 1",
            ));
        }
        if !backoff_factor.is_finite() || backoff_factor >= 1.0 {
            return Err(refused(
                "backoff_factor",
                backoff_factor.to_string(),
                "a finite number below 1",
            ));
        }
        let state = GradScalerState {
            scale: init_scale,
            growth_factor,
            backoff_factor,
            growth_interval,
            growth_tracker: 0,
        };
        Ok(GradScaler { enabled, state, tensors: None, optimizers: HashMap::new() })
    }

    /// The loss, multiplied by the scale; for its backward pass. `scaler.scale(loss)`
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
            None => self.tensors.insert(self.state.to_tensors(device)?),
        };
        scale.f_to(device).and_then(|scale| loss.f_mul(&scale)).map_err(Error::tensor("scale"))
    }

    /// Divides the optimizer's gradients by the scale, for whoever wants to
    /// [clip](crate::optim::clip_grad_norm_) or look at them before [`step`](Self::step), which does it
    /// otherwise.
    ///
    /// # Errors
    /// [`Error::Argument`] if it is called out of turn: before [`scale`](Self::scale), or twice before
    /// [`update`](Self::update); if there are no gradients, or some of 16 bits: the parameters are to
    /// be of 32.
    pub fn unscale_(&mut self, optimizer: &mut dyn Optimizer) -> Result<()> {
        if !self.enabled {
            return Ok(());
        }
        let (scale, _) = self.tensors.as_ref().ok_or_else(|| not_scaled("unscale_"))?;
        let parameters = optimizer.parameters();
        let key = key(&parameters);
        if let Some(checked) = self.optimizers.get(&key) {
            let found = if checked.stepped { "called after step" } else { "called twice" };
            return Err(refused("unscale_", found.into(), "called once before update"));
        }
        let found_inf = no_grad(|| divide(&parameters, scale))?;
        self.optimizers.insert(key, Checked { found_inf, stepped: false });
        Ok(())
    }

    /// The optimizer's step, unless a gradient is infinite or no number: whether it was made.
    ///
    /// # Errors
    /// As [`unscale_`](Self::unscale_), which is called if that has not been done; and for a second
    /// step before [`update`](Self::update).
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
            if checked.stepped {
                return Err(refused("step", "called twice".into(), "called once before update"));
            }
            for found in &checked.found_inf {
                finite &= found.f_double_value(&[]).map_err(Error::tensor("step"))? == 0.0;
            }
            checked.stepped = true;
        }
        if finite {
            optimizer.step()?;
        }
        Ok(finite)
    }

    /// Shrinks the scale if a step was left out since the last update, and lets it grow if none was
    /// for long enough. To be called at the end of each iteration.
    ///
    /// # Errors
    /// [`Error::Argument`] if no step was tried since the last update.
    pub fn update(&mut self) -> Result<()> {
        if !self.enabled {
            return Ok(());
        }
        let (scale, growth_tracker) = self.tensors.as_mut().ok_or_else(|| not_scaled("update"))?;
        let checked = std::mem::take(&mut self.optimizers).into_values();
        let found_inf: Vec<_> = checked.flat_map(|checked| checked.found_inf).collect();
        if found_inf.is_empty() {
            return Err(refused("update", "called without a step".into(), "called after step"));
        }
        let GradScalerState { growth_factor, backoff_factor, growth_interval, .. } = self.state;
        let mut update = || {
            let mut combined = scale.f_zeros_like()?;
            for found in &found_inf {
                combined = combined.f_add(&found.f_to(scale.device())?)?;
            }
            scale.f_internal_amp_update_scale_(
                growth_tracker,
                &combined,
                growth_factor,
                backoff_factor,
                growth_interval,
            )
        };
        update().map(|_| ()).map_err(Error::tensor("update"))
    }

    /// What losses are multiplied by at present: `get_scale()`. 1 if scaling is off. Waits for a GPU.
    ///
    /// # Errors
    /// [`Error::Tensor`] if the scale cannot be read from its device.
    pub fn get_scale(&self) -> Result<f64> {
        Ok(self.state_dict()?.map_or(1.0, |state| state.scale))
    }

    /// What the next iteration depends on; None if scaling is off. To be called after
    /// [`update`](Self::update).
    ///
    /// # Errors
    /// As [`get_scale`](Self::get_scale).
    pub fn state_dict(&self) -> Result<Option<GradScalerState>> {
        if !self.enabled {
            return Ok(None);
        }
        let mut state = self.state;
        if let Some((scale, growth_tracker)) = &self.tensors {
            state.scale = scale.f_double_value(&[]).map_err(Error::tensor("state_dict"))?;
            state.growth_tracker =
                growth_tracker.f_int64_value(&[]).map_err(Error::tensor("state_dict"))?;
        }
        Ok(Some(state))
    }

    /// Goes on from a state that [`state_dict`](Self::state_dict) gave; does nothing if scaling is
    /// off.
    pub fn load_state_dict(&mut self, state: &GradScalerState) {
        if self.enabled {
            self.state = *state;
            self.tensors = None;
        }
    }
}

impl GradScalerState {
    fn to_tensors(self, device: Device) -> Result<(Tensor, Tensor)> {
        let full = |value: f64, kind| {
            Tensor::f_full([0; 0], value, (kind, device)).map_err(Error::tensor("scale"))
        };
        Ok((full(self.scale, Kind::Float)?, full(self.growth_tracker as f64, Kind::Int)?))
    }
}

/// Divides all gradients, those of each device and kind at once; and what was found for each.
fn divide(parameters: &[Tensor], scale: &Tensor) -> Result<Vec<Tensor>> {
    let mut groups: Vec<(Device, Kind, Vec<Tensor>)> = Vec::new();
    for gradient in parameters.iter().map(Tensor::grad).filter(Tensor::defined) {
        let (device, kind) = (gradient.device(), gradient.kind());
        if kind == Kind::Half {
            let expected = "of Float: parameters stay in 32 bits under autocast";
            return Err(refused("a gradient", "of Half".into(), expected));
        }
        match groups.iter_mut().find(|group| (group.0, group.1) == (device, kind)) {
            Some(group) => group.2.push(gradient),
            None => groups.push((device, kind, vec![gradient])),
        }
    }
    if groups.is_empty() {
        return Err(refused(
            "the optimizer",
            "without a gradient".into(),
            "stepped after a backward pass",
        ));
    }
    // In 64 bits, as in PyTorch: some compilers approximate the reciprocal of an f32.
    let inverse = scale
        .f_to_kind(Kind::Double)
        .and_then(|scale| scale.f_reciprocal())
        .and_then(|inverse| inverse.f_to_kind(Kind::Float))
        .map_err(Error::tensor("unscale_"))?;
    let mut all_found = Vec::new();
    for (device, _, mut gradients) in groups {
        let mut found =
            Tensor::f_zeros([0; 0], (Kind::Float, device)).map_err(Error::tensor("unscale_"))?;
        let inverse = inverse.f_to(device).map_err(Error::tensor("unscale_"))?;
        non_finite_check_and_unscale_(&mut gradients, &mut found, &inverse)
            .map_err(Error::engine("unscale_"))?;
        all_found.push(found);
    }
    Ok(all_found)
}

/// By what an optimizer is known again.
fn key(parameters: &[Tensor]) -> usize {
    parameters.first().map_or(0, identity)
}

fn not_scaled(what: &str) -> Error {
    refused(what, "called before scale".into(), "called after the backward pass of a scaled loss")
}

fn refused(what: &str, found: String, expected: &str) -> Error {
    Error::Argument { what: what.into(), found, expected: expected.into() }
}

#[cfg(test)]
mod tests;
