//! NAdam: `torch.optim.NAdam`.

use super::optimizer::check_not_negative;
use super::param_group::GroupOptions;
use super::param_group_optimizer::ParamGroupOptimizer;
use super::parameter_state::StateShape;
use super::rule_parts::{WeightDecay, check_betas, decayed, each, power_of_a_half};
use super::state_list::StateList;
use super::tensor_list::TensorList;
use super::update_rule::UpdateRule;
use crate::Result;
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
    /// Whether to update parameters in lists; see [`UpdateRule::foreach`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub foreach: Option<bool>,
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
            foreach: None,
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

    fn foreach(&self) -> Option<bool> {
        self.foreach
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

    /// `_single_tensor_nadam` and `_multi_tensor_nadam`
    fn step(
        &self,
        parameters: &mut TensorList,
        gradients: &TensorList,
        states: &mut StateList<'_>,
    ) -> Result<()> {
        let NAdamOptions { lr, betas: (beta1, beta2), eps, .. } = *self;
        let mut exp_avgs = states.zeros_like("exp_avg", parameters)?.as_real()?;
        let mut exp_avg_sqs = states.zeros_like("exp_avg_sq", parameters)?.as_real()?;
        let mut mu_products = states.get_or_insert_with("mu_product", |_| {
            Tensor::f_ones([0; 0], (Kind::Float, Device::Cpu))
        })?;
        let steps = states.count_step()?;
        let decay = WeightDecay::new(self.weight_decay, self.decoupled_weight_decay, lr);
        let (parameters, gradients) = (parameters.as_real()?, gradients.as_real()?);
        let (mut weights, gradients) = decayed(&parameters, &gradients, self.maximize, decay)?;
        let mus = each(&steps, |step| self.mu(step));
        mu_products.mul_numbers_(&mus)?;

        exp_avgs.lerp_(&gradients, 1.0 - beta1)?;
        exp_avg_sqs.mul_number_(beta2)?;
        exp_avg_sqs.addcmul_(&gradients, &gradients, 1.0 - beta2)?;
        let bias_correction2 = each(&steps, |step| 1.0 - beta2.powf(step));
        let mut denominators = if exp_avg_sqs.is_foreach() {
            let mut roots = exp_avg_sqs.sqrt()?;
            roots.div_numbers_(&each(&bias_correction2, power_of_a_half))?;
            roots
        } else {
            let mut averages = exp_avg_sqs.copy()?;
            averages.div_numbers_(&bias_correction2)?;
            averages.sqrt_()?;
            averages
        };
        denominators.add_number_(eps)?;
        let mut of_gradients = Vec::new();
        let mut of_averages = Vec::new();
        for ((step, mu), mu_product) in steps.iter().zip(&mus).zip(mu_products.iter()) {
            let (mu_next, mu_product) = (self.mu(step + 1.0), mu_product.f_double_value(&[])?);
            of_gradients.push(-lr * (1.0 - mu) / (1.0 - mu_product));
            of_averages.push(-lr * mu_next / (1.0 - mu_product * mu_next));
        }
        weights.addcdiv_numbers_(&gradients, &denominators, &of_gradients)?;
        weights.addcdiv_numbers_(&exp_avgs, &denominators, &of_averages)
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
