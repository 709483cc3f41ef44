//! RAdam: `torch.optim.RAdam`.

use super::optimizer::check_not_negative;
use super::param_group::GroupOptions;
use super::param_group_optimizer::ParamGroupOptimizer;
use super::parameter_state::StateShape;
use super::rule_parts::{WeightDecay, check_betas, decayed, each, power_of_a_half};
use super::state_list::StateList;
use super::tensor_list::TensorList;
use super::update_rule::UpdateRule;
use crate::Result;
use c10d_sys::arithmetic::{add_number_, mul_number_};
use serde::{Deserialize, Serialize};

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
    /// Whether to update parameters in lists; see [`UpdateRule::foreach`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub foreach: Option<bool>,
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
            foreach: None,
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

    fn foreach(&self) -> Option<bool> {
        self.foreach
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

    /// `_single_tensor_radam` and `_multi_tensor_radam`
    fn step(
        &self,
        parameters: &mut TensorList,
        gradients: &TensorList,
        states: &mut StateList<'_>,
    ) -> Result<()> {
        let RAdamOptions { lr, betas: (beta1, beta2), .. } = *self;
        let mut exp_avgs = states.zeros_like("exp_avg", parameters)?.as_real()?;
        let mut exp_avg_sqs = states.zeros_like("exp_avg_sq", parameters)?.as_real()?;
        let steps = states.count_step()?;
        let decay = WeightDecay::new(self.weight_decay, self.decoupled_weight_decay, lr);
        let (parameters, gradients) = (parameters.as_real()?, gradients.as_real()?);
        let (mut weights, gradients) = decayed(&parameters, &gradients, self.maximize, decay)?;
        exp_avgs.lerp_(&gradients, 1.0 - beta1)?;
        exp_avg_sqs.mul_number_(beta2)?;
        exp_avg_sqs.addcmul_(&gradients, &gradients, 1.0 - beta2)?;
        drop(gradients);
        if weights.is_foreach() {
            let rates = self.rates(&steps, &exp_avg_sqs)?;
            weights.addcmul_(&exp_avgs, &rates, 1.0)
        } else {
            weights.add_scaled_(&self.updates(&steps, &exp_avgs, &exp_avg_sqs)?, -1.0)
        }
    }
}

impl RAdamOptions {
    /// Corrects a step for the number of squares in the average. `None` as long as there are too
    /// few of them to divide by their average.
    fn rectification(&self, step: f64) -> Option<f64> {
        let beta2 = self.betas.1;
        // The number of squares in the average, in the end and now.
        let rho_inf = 2.0 / (1.0 - beta2) - 1.0;
        let rho = rho_inf - 2.0 * step * beta2.powf(step) / (1.0 - beta2.powf(step));
        (rho > 5.0).then(|| {
            power_of_a_half(
                (rho - 4.0) * (rho - 2.0) * rho_inf / ((rho_inf - 4.0) * (rho_inf - 2.0) * rho),
            )
        })
    }

    /// What the single-tensor function subtracts from the parameters.
    fn updates(
        &self,
        steps: &[f64],
        exp_avgs: &TensorList,
        exp_avg_sqs: &TensorList,
    ) -> Result<TensorList> {
        let (beta1, beta2) = self.betas;
        let mut updates = exp_avgs.copy()?;
        updates.div_numbers_(&each(steps, |step| 1.0 - beta1.powf(step)))?;
        updates.mul_number_(self.lr)?;
        for ((update, exp_avg_sq), &step) in updates.iter_mut().zip(exp_avg_sqs.iter()).zip(steps) {
            let Some(rectification) = self.rectification(step) else { continue };
            let mut adaptive = exp_avg_sq.f_sqrt()?;
            add_number_(&mut adaptive, self.eps)?;
            // A number divided by a tensor is a product in Python.
            let _ = adaptive.f_reciprocal_()?;
            mul_number_(&mut adaptive, power_of_a_half(1.0 - beta2.powf(step)))?;
            let _ = update.f_mul_(&adaptive)?;
            mul_number_(update, rectification)?;
        }
        Ok(updates)
    }

    /// What the multi-tensor function multiplies the averages of the gradients by, before it adds
    /// them to the parameters.
    fn rates(&self, steps: &[f64], exp_avg_sqs: &TensorList) -> Result<TensorList> {
        let (lr, (beta1, beta2)) = (self.lr, self.betas);
        let divisors = each(steps, |step| {
            let rectification = self.rectification(step).unwrap_or(0.0);
            let bias_correction1 = 1.0 - beta1.powf(step);
            -(power_of_a_half(1.0 - beta2.powf(step)) * (lr * rectification / bias_correction1))
        });
        let unrectified = each(steps, |step| {
            let share = if self.rectification(step).is_some() { 0.0 } else { 1.0 };
            -(lr * share / (1.0 - beta1.powf(step)))
        });
        let mut rates = exp_avg_sqs.sqrt()?;
        rates.add_number_(self.eps)?;
        rates.div_numbers_(&divisors)?;
        rates.reciprocal_()?;
        rates.add_numbers_(&unrectified)?;
        Ok(rates)
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
