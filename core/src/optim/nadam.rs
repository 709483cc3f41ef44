//! NAdam: `torch.optim.NAdam`.

use super::optimizer::check_not_negative;
use super::param_group::GroupOptions;
use super::param_group_optimizer::ParamGroupOptimizer;
use super::rule_parts::{as_real, check_betas, downwards};
use super::update_rule::{ParameterState, StateShape, UpdateRule};
use crate::Result;
use c10d_sys::arithmetic::{
    add_number_, add_scaled, addcdiv_, addcmul_, copy, div_number_, lerp_, mul_number_,
};
use serde::{Deserialize, Serialize};
use tch::{Device, Kind, Tensor};

/// PyTorch's keyword arguments of `NAdam`, with its defaults.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct NAdamOptions {
    /// The learning rate.
    pub lr: f64,
    /// The decay rates of the moving averages of the gradient and of its square.
    pub betas: (f64, f64),
    /// Added to the denominator of a step, which could be 0.
    pub eps: f64,
    /// Weight decay.
    pub weight_decay: f64,
    /// How fast the momentum of the schedule grows to `betas.0` from half of it.
    pub momentum_decay: f64,
    /// Whether the decay applies directly to the parameters, instead of being added to their
    /// gradients (L2 penalty).
    pub decoupled_weight_decay: bool,
    /// Whether to maximize the objective instead of minimizing it.
    pub maximize: bool,
}

impl Default for NAdamOptions {
    fn default() -> Self {
        NAdamOptions {
            lr: 2e-3,
            betas: (0.9, 0.999),
            eps: 1e-8,
            weight_decay: 0.0,
            momentum_decay: 4e-3,
            decoupled_weight_decay: false,
            maximize: false,
        }
    }
}

/// `torch.optim.NAdam`, bit for bit: Adam with Nesterov momentum, which looks one step ahead.
pub type NAdam = ParamGroupOptimizer<NAdamOptions>;

impl GroupOptions for NAdamOptions {
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

impl UpdateRule for NAdamOptions {
    fn name(&self) -> &'static str {
        "NAdam"
    }

    fn check(&self) -> Result<()> {
        check_betas(self.betas)?;
        check_not_negative(&[
            ("lr", self.lr),
            ("eps", self.eps),
            ("weight_decay", self.weight_decay),
            ("momentum_decay", self.momentum_decay),
        ])
    }

    fn state_layout(&self) -> Vec<(&'static str, StateShape)> {
        vec![
            ("step", StateShape::Scalar),
            ("mu_product", StateShape::Scalar),
            ("exp_avg", StateShape::Parameter),
            ("exp_avg_sq", StateShape::Parameter),
        ]
    }

    /// `_single_tensor_nadam`
    fn step(
        &self,
        parameter: &mut Tensor,
        gradient: &Tensor,
        state: &mut ParameterState,
    ) -> Result<()> {
        let NAdamOptions { lr, betas: (beta1, beta2), eps, weight_decay, .. } = *self;
        let mut gradient = as_real(&downwards(gradient, self.maximize)?)?;
        let mut exp_avg = as_real(&state.zeros_like("exp_avg", parameter)?)?;
        let mut exp_avg_sq = as_real(&state.zeros_like("exp_avg_sq", parameter)?)?;
        let mut mu_product = state.get_or_insert_with("mu_product", || {
            Tensor::f_ones([0; 0], (Kind::Float, Device::Cpu))
        })?;
        let mut weights = as_real(parameter)?;
        let step = state.count_step()?;
        if weight_decay != 0.0 {
            if self.decoupled_weight_decay {
                mul_number_(&mut weights, 1.0 - lr * weight_decay)?;
            } else {
                gradient = add_scaled(&gradient, &weights, weight_decay)?;
            }
        }
        let (mu, mu_next) = (self.mu(step), self.mu(step + 1.0));
        mul_number_(&mut mu_product, mu)?;
        let mu_product = mu_product.f_double_value(&[])?;

        lerp_(&mut exp_avg, &gradient, 1.0 - beta1)?;
        mul_number_(&mut exp_avg_sq, beta2)?;
        addcmul_(&mut exp_avg_sq, &gradient, &gradient, 1.0 - beta2)?;
        let mut denominator = copy(&exp_avg_sq)?;
        div_number_(&mut denominator, 1.0 - beta2.powf(step))?;
        let _ = denominator.f_sqrt_()?;
        add_number_(&mut denominator, eps)?;
        let of_gradient = -lr * (1.0 - mu) / (1.0 - mu_product);
        let of_average = -lr * mu_next / (1.0 - mu_product * mu_next);
        addcdiv_(&mut weights, &gradient, &denominator, of_gradient)?;
        Ok(addcdiv_(&mut weights, &exp_avg, &denominator, of_average)?)
    }
}

impl NAdamOptions {
    /// The momentum in a step.
    fn mu(&self, step: f64) -> f64 {
        self.betas.0 * (1.0 - 0.5 * 0.96_f64.powf(step * self.momentum_decay))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_pytorch_refuses_is_refused() {
        let good = NAdamOptions::default();
        for (options, message) in [
            (NAdamOptions { lr: -0.1, ..good }, "lr is -0.1, but must be a number not below 0"),
            (
                NAdamOptions { eps: f64::NAN, ..good },
                "eps is NaN, but must be a number not below 0",
            ),
            (
                NAdamOptions { weight_decay: -0.1, ..good },
                "weight_decay is -0.1, but must be a number not below 0",
            ),
            (
                NAdamOptions { momentum_decay: -0.1, ..good },
                "momentum_decay is -0.1, but must be a number not below 0",
            ),
            (
                NAdamOptions { betas: (1.0, 0.999), ..good },
                "betas.0 is 1, but must be at least 0 and below 1",
            ),
            (
                NAdamOptions { betas: (0.9, -0.1), ..good },
                "betas.1 is -0.1, but must be at least 0 and below 1",
            ),
        ] {
            let refused = NAdam::from_named_parameters(Vec::new(), options).unwrap_err();
            assert_eq!(refused.to_string(), message);
        }
    }
}
