//! RMSprop: `torch.optim.RMSprop`.

use super::optimizer::check_not_negative;
use super::param_group::GroupOptions;
use super::param_group_optimizer::ParamGroupOptimizer;
use super::rule_parts::{as_real, downwards};
use super::update_rule::{ParameterState, StateShape, UpdateRule};
use crate::Result;
use c10d_sys::arithmetic::{
    add_number_, add_scaled, add_scaled_, addcdiv_, addcmul_, copy, lerp_, mul_number_,
};
use serde::{Deserialize, Serialize};
use tch::Tensor;

/// PyTorch's keyword arguments of `RMSprop`, with its defaults.
#[doc(alias = "RMSprop")]
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct RmsPropOptions {
    /// The learning rate.
    pub lr: f64,
    /// The decay rate of the moving average of the squared gradient.
    pub alpha: f64,
    /// Added to the denominator of a step, which could be 0.
    pub eps: f64,
    /// Weight decay (L2 penalty, added to the gradient).
    pub weight_decay: f64,
    /// Momentum: the fraction of the last step that is kept; with 0, it uses no memory.
    pub momentum: f64,
    /// Whether to divide by the gradient's standard deviation, which takes a moving average of the
    /// gradient too, instead of its root mean square.
    pub centered: bool,
    /// Whether to maximize the objective instead of minimizing it.
    pub maximize: bool,
}

impl Default for RmsPropOptions {
    fn default() -> Self {
        RmsPropOptions {
            lr: 1e-2,
            alpha: 0.99,
            eps: 1e-8,
            weight_decay: 0.0,
            momentum: 0.0,
            centered: false,
            maximize: false,
        }
    }
}

/// `torch.optim.RMSprop`, bit for bit: a step is the gradient divided by the root of the moving
/// average of its square.
///
/// ```
/// use tch::{Device, Kind, nn::VarStore};
/// use tch_parallel::optim::{Optimizer, RmsProp, RmsPropOptions};
///
/// let vs = VarStore::new(Device::Cpu);
/// let weight = vs.root().zeros("weight", &[3]);
/// let mut optimizer = RmsProp::new(&vs, RmsPropOptions { lr: 0.1, ..Default::default() })?;
/// (&weight * 7.0).sum(Kind::Float).backward();
/// optimizer.step()?;
/// // The average of the squares is 0.01 * 7 * 7 so far, and its root 0.7.
/// assert!((weight.double_value(&[0]) + 0.1 * 7.0 / 0.7).abs() < 1e-6);
/// # Ok::<(), tch_parallel::Error>(())
/// ```
#[doc(alias = "RMSprop")]
pub type RmsProp = ParamGroupOptimizer<RmsPropOptions>;

impl GroupOptions for RmsPropOptions {
    fn lr(&self) -> f64 {
        self.lr
    }

    fn set_lr(&mut self, lr: f64) {
        self.lr = lr;
    }

    fn momentum(&self) -> Option<f64> {
        Some(self.momentum)
    }

    fn set_momentum(&mut self, momentum: f64) {
        self.momentum = momentum;
    }
}

impl UpdateRule for RmsPropOptions {
    fn name(&self) -> &'static str {
        "RMSprop"
    }

    fn check(&self) -> Result<()> {
        check_not_negative(&[
            ("lr", self.lr),
            ("eps", self.eps),
            ("momentum", self.momentum),
            ("weight_decay", self.weight_decay),
            ("alpha", self.alpha),
        ])
    }

    fn state_layout(&self) -> Vec<(&'static str, StateShape)> {
        let mut layout = vec![("step", StateShape::Scalar), ("square_avg", StateShape::Parameter)];
        if self.momentum > 0.0 {
            layout.push(("momentum_buffer", StateShape::Parameter));
        }
        if self.centered {
            layout.push(("grad_avg", StateShape::Parameter));
        }
        layout
    }

    /// `_single_tensor_rmsprop`
    fn step(
        &self,
        parameter: &mut Tensor,
        gradient: &Tensor,
        state: &mut ParameterState,
    ) -> Result<()> {
        let RmsPropOptions { lr, alpha, eps, weight_decay, momentum, .. } = *self;
        state.count_step()?;
        let mut gradient = downwards(gradient, self.maximize)?;
        if weight_decay != 0.0 {
            gradient = add_scaled(&gradient, parameter, weight_decay)?;
        }
        let gradient = as_real(&gradient)?;
        let mut square_avg = as_real(&state.zeros_like("square_avg", parameter)?)?;
        mul_number_(&mut square_avg, alpha)?;
        addcmul_(&mut square_avg, &gradient, &gradient, 1.0 - alpha)?;

        let mut denominator = if self.centered {
            let mut grad_avg = as_real(&state.zeros_like("grad_avg", parameter)?)?;
            lerp_(&mut grad_avg, &gradient, 1.0 - alpha)?;
            let mut variance = copy(&square_avg)?;
            addcmul_(&mut variance, &grad_avg, &grad_avg, -1.0)?;
            variance.f_sqrt_()?
        } else {
            square_avg.f_sqrt()?
        };
        add_number_(&mut denominator, eps)?;
        let mut weights = as_real(parameter)?;
        if momentum > 0.0 {
            let mut buffer = as_real(&state.zeros_like("momentum_buffer", parameter)?)?;
            mul_number_(&mut buffer, momentum)?;
            addcdiv_(&mut buffer, &gradient, &denominator, 1.0)?;
            Ok(add_scaled_(&mut weights, &buffer, -lr)?)
        } else {
            Ok(addcdiv_(&mut weights, &gradient, &denominator, -lr)?)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_pytorch_refuses_is_refused() {
        let good = RmsPropOptions::default();
        for (options, message) in [
            (RmsPropOptions { lr: -0.1, ..good }, "lr is -0.1, but must be a number not below 0"),
            (
                RmsPropOptions { eps: f64::NAN, ..good },
                "eps is NaN, but must be a number not below 0",
            ),
            (
                RmsPropOptions { momentum: -0.1, ..good },
                "momentum is -0.1, but must be a number not below 0",
            ),
            (
                RmsPropOptions { weight_decay: -0.1, ..good },
                "weight_decay is -0.1, but must be a number not below 0",
            ),
            (
                RmsPropOptions { alpha: -0.1, ..good },
                "alpha is -0.1, but must be a number not below 0",
            ),
        ] {
            let refused = RmsProp::from_named_parameters(Vec::new(), options).unwrap_err();
            assert_eq!(refused.to_string(), message);
        }
    }
}
