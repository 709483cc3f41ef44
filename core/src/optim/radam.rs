//! RAdam: `torch.optim.RAdam`.

use super::optimizer::check_not_negative;
use super::param_group::GroupOptions;
use super::param_group_optimizer::ParamGroupOptimizer;
use super::rule_parts::{as_real, check_betas, downwards, power_of_a_half};
use super::update_rule::{ParameterState, StateShape, UpdateRule};
use crate::Result;
use c10d_sys::arithmetic::{
    add_number_, add_scaled, add_scaled_, addcmul_, copy, div_number_, lerp_, mul_number_,
};
use serde::{Deserialize, Serialize};
use tch::Tensor;

/// PyTorch's keyword arguments of `RAdam`, with its defaults.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct RAdamOptions {
    /// The learning rate.
    pub lr: f64,
    /// The decay rates of the moving averages of the gradient and of its square.
    pub betas: (f64, f64),
    /// Added to the denominator of a step, which could be 0.
    pub eps: f64,
    /// Weight decay.
    pub weight_decay: f64,
    /// Whether the decay applies directly to the parameters, instead of being added to their
    /// gradients (L2 penalty).
    pub decoupled_weight_decay: bool,
    /// Whether to maximize the objective instead of minimizing it.
    pub maximize: bool,
}

impl Default for RAdamOptions {
    fn default() -> Self {
        RAdamOptions {
            lr: 1e-3,
            betas: (0.9, 0.999),
            eps: 1e-8,
            weight_decay: 0.0,
            decoupled_weight_decay: false,
            maximize: false,
        }
    }
}

/// `torch.optim.RAdam`, bit for bit: Adam that does not divide by the average of the squares until
/// enough steps have entered it.
pub type RAdam = ParamGroupOptimizer<RAdamOptions>;

impl GroupOptions for RAdamOptions {
    fn lr(&self) -> f64 {
        self.lr
    }

    fn set_lr(&mut self, lr: f64) {
        self.lr = lr;
    }

    fn momentum(&self) -> Option<f64> {
        Some(self.betas.0)
    }

    fn set_momentum(&mut self, momentum: f64) {
        self.betas.0 = momentum;
    }
}

impl UpdateRule for RAdamOptions {
    fn name(&self) -> &'static str {
        "RAdam"
    }

    fn check(&self) -> Result<()> {
        check_betas(self.betas)?;
        check_not_negative(&[
            ("lr", self.lr),
            ("eps", self.eps),
            ("weight_decay", self.weight_decay),
        ])
    }

    fn state_layout(&self) -> Vec<(&'static str, StateShape)> {
        vec![
            ("step", StateShape::Scalar),
            ("exp_avg", StateShape::Parameter),
            ("exp_avg_sq", StateShape::Parameter),
        ]
    }

    /// `_single_tensor_radam`
    fn step(
        &self,
        parameter: &mut Tensor,
        gradient: &Tensor,
        state: &mut ParameterState,
    ) -> Result<()> {
        let RAdamOptions { lr, betas: (beta1, beta2), eps, weight_decay, .. } = *self;
        let mut gradient = as_real(&downwards(gradient, self.maximize)?)?;
        let mut exp_avg = as_real(&state.zeros_like("exp_avg", parameter)?)?;
        let mut exp_avg_sq = as_real(&state.zeros_like("exp_avg_sq", parameter)?)?;
        let mut weights = as_real(parameter)?;
        let step = state.count_step()?;
        if weight_decay != 0.0 {
            if self.decoupled_weight_decay {
                mul_number_(&mut weights, 1.0 - lr * weight_decay)?;
            } else {
                gradient = add_scaled(&gradient, &weights, weight_decay)?;
            }
        }
        lerp_(&mut exp_avg, &gradient, 1.0 - beta1)?;
        mul_number_(&mut exp_avg_sq, beta2)?;
        addcmul_(&mut exp_avg_sq, &gradient, &gradient, 1.0 - beta2)?;

        let bias_correction2 = 1.0 - beta2.powf(step);
        let mut update = copy(&exp_avg)?;
        div_number_(&mut update, 1.0 - beta1.powf(step))?;
        mul_number_(&mut update, lr)?;

        // The number of squares in the average, in the end and now.
        let rho_inf = 2.0 / (1.0 - beta2) - 1.0;
        let rho = rho_inf - 2.0 * step * beta2.powf(step) / bias_correction2;
        if rho > 5.0 {
            let rectification = power_of_a_half(
                (rho - 4.0) * (rho - 2.0) * rho_inf / ((rho_inf - 4.0) * (rho_inf - 2.0) * rho),
            );
            let mut adaptive = exp_avg_sq.f_sqrt()?;
            add_number_(&mut adaptive, eps)?;
            // A number divided by a tensor is a product in Python.
            let _ = adaptive.f_reciprocal_()?;
            mul_number_(&mut adaptive, power_of_a_half(bias_correction2))?;
            let _ = update.f_mul_(&adaptive)?;
            mul_number_(&mut update, rectification)?;
        }
        Ok(add_scaled_(&mut weights, &update, -1.0)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_pytorch_refuses_is_refused() {
        let good = RAdamOptions::default();
        for (options, message) in [
            (RAdamOptions { lr: -0.1, ..good }, "lr is -0.1, but must be a number not below 0"),
            (
                RAdamOptions { eps: f64::NAN, ..good },
                "eps is NaN, but must be a number not below 0",
            ),
            (
                RAdamOptions { weight_decay: -0.1, ..good },
                "weight_decay is -0.1, but must be a number not below 0",
            ),
            (
                RAdamOptions { betas: (1.0, 0.999), ..good },
                "betas.0 is 1, but must be at least 0 and below 1",
            ),
            (
                RAdamOptions { betas: (0.9, -0.1), ..good },
                "betas.1 is -0.1, but must be at least 0 and below 1",
            ),
        ] {
            let refused = RAdam::from_named_parameters(Vec::new(), options).unwrap_err();
            assert_eq!(refused.to_string(), message);
        }
    }
}
