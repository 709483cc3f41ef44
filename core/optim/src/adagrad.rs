//! Adagrad: `torch.optim.Adagrad`.

use super::optimizer::check_not_negative;
use super::param_group::GroupOptions;
use super::param_group_optimizer::ParamGroupOptimizer;
use super::parameter_state::StateShape;
use super::rule_parts::{WeightDecay, decayed, downwards, each, with_values};
use super::state_list::StateList;
use super::tensor_list::{TensorList, as_real};
use super::update_rule::{GradientLayout, UpdateRule};
use crate::{Error, Result};
use c10d_sys::arithmetic::{add_number_, add_scaled_};
use serde::{Deserialize, Serialize};
use tch::{TchError, Tensor};

/// PyTorch's keyword arguments of `Adagrad`, with its defaults.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct AdagradOptions {
    /// The learning rate of the first step.
    pub lr: f64,
    /// How fast the learning rate decays: after N steps it is divided by `1 + N * lr_decay`.
    pub lr_decay: f64,
    /// Weight decay (L2 penalty, added to the gradient). Sparse gradients do not support it.
    pub weight_decay: f64,
    /// The initial value of the sums of squares.
    pub initial_accumulator_value: f64,
    /// Added to the denominator of a step, which could be 0.
    pub eps: f64,
    /// Whether to maximize the objective instead of minimizing it.
    pub maximize: bool,
    /// Whether to update parameters in lists; see [`UpdateRule::foreach`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub foreach: Option<bool>,
}

impl Default for AdagradOptions {
    fn default() -> Self {
        AdagradOptions {
            lr: 1e-2,
            lr_decay: 0.0,
            weight_decay: 0.0,
            initial_accumulator_value: 0.0,
            eps: 1e-10,
            maximize: false,
            foreach: None,
        }
    }
}

/// `torch.optim.Adagrad`, bit for bit: a step is the gradient divided by the root of the sum of
/// the squares of all gradients so far. Supports sparse gradients.
pub type Adagrad = ParamGroupOptimizer<AdagradOptions>;

impl GroupOptions for AdagradOptions {
    fn lr(&self) -> f64 {
        self.lr
    }

    fn set_lr(&mut self, lr: f64) {
        self.lr = lr;
    }
}

impl UpdateRule for AdagradOptions {
    fn name(&self) -> &'static str {
        "Adagrad"
    }

    fn foreach(&self) -> Option<bool> {
        self.foreach
    }

    fn check(&self) -> Result<()> {
        check_not_negative(&[
            ("lr", self.lr),
            ("lr_decay", self.lr_decay),
            ("weight_decay", self.weight_decay),
            ("initial_accumulator_value", self.initial_accumulator_value),
            ("eps", self.eps),
        ])
    }

    fn state_layout(&self) -> Vec<(&'static str, StateShape)> {
        vec![("step", StateShape::Scalar), ("sum", StateShape::Parameter)]
    }

    fn gradient_layout(&self) -> GradientLayout {
        GradientLayout::Any
    }

    /// `_single_tensor_adagrad` and `_multi_tensor_adagrad`
    fn step(
        &self,
        parameters: &mut TensorList,
        gradients: &TensorList,
        states: &mut StateList<'_>,
    ) -> Result<()> {
        let AdagradOptions { lr, lr_decay, weight_decay, eps, .. } = *self;
        let is_sparse = gradients.iter().any(Tensor::is_sparse);
        if weight_decay != 0.0 && is_sparse {
            let found = format!("{weight_decay} with a sparse gradient");
            return Err(Error::argument("weight_decay", found, "0"));
        }
        let sums = states.get_or_insert_with("sum", |i| self.initial_sum(&parameters[i]))?;
        let steps = states.count_step()?;
        let rates = each(&steps, |step| -(lr / (1.0 + (step - 1.0) * lr_decay)));
        if is_sparse {
            let gradients = downwards(gradients, self.maximize)?;
            return self.sparse_step(parameters, &gradients, sums, &rates);
        }
        let decay = WeightDecay::Penalty(weight_decay);
        let (mut weights, mut gradients) = decayed(parameters, gradients, self.maximize, decay)?;
        let mut sums = sums.as_real()?;
        sums.addcmul_(&gradients, &gradients, 1.0)?;
        let mut denominators = sums.sqrt()?;
        denominators.add_number_(eps)?;
        if weights.is_foreach() {
            // On the CPU, the two products round 16-bit numbers differently. In place it must not be
            // the parameter's own gradient.
            let numerators = if weight_decay != 0.0 || self.maximize {
                gradients.mul_numbers_(&rates)?;
                gradients
            } else {
                gradients.mul_numbers(&rates)?
            };
            weights.addcdiv_(&numerators, &denominators, 1.0)
        } else {
            weights.addcdiv_numbers_(&gradients, &denominators, &rates)
        }
    }
}

impl AdagradOptions {
    /// Only the values that the gradients contain, and their sums, change.
    fn sparse_step(
        &self,
        parameters: &mut TensorList,
        gradients: &TensorList,
        mut sums: TensorList,
        rates: &[f64],
    ) -> Result<()> {
        let tensors = parameters.iter_mut().zip(gradients.iter()).zip(sums.iter_mut());
        for (((parameter, gradient), sum), &rate) in tensors.zip(rates) {
            // An index that appears twice would be squared in parts.
            let gradient = gradient.f_coalesce()?;
            let values = gradient.f_internal_values()?;
            let _ = sum.f_add_(&with_values(&gradient, &values.f_square()?)?)?;
            let mut denominator = sum.f_sparse_mask(&gradient)?.f_internal_values()?.f_sqrt_()?;
            add_number_(&mut denominator, self.eps)?;
            let direction = with_values(&gradient, &values.f_div(&denominator)?)?;
            add_scaled_(parameter, &direction, rate)?;
        }
        Ok(())
    }

    fn initial_sum(&self, parameter: &Tensor) -> Result<Tensor, TchError> {
        let sum = parameter.f_zeros_like()?;
        // Both parts of complex numbers.
        add_number_(&mut as_real(&sum)?, self.initial_accumulator_value)?;
        Ok(sum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_pytorch_refuses_is_refused() {
        let good = AdagradOptions::default();
        for (options, message) in [
            (AdagradOptions { lr: -0.1, ..good }, "lr is -0.1, but must be a number not below 0"),
            (
                AdagradOptions { eps: f64::NAN, ..good },
                "eps is NaN, but must be a number not below 0",
            ),
            (
                AdagradOptions { lr_decay: -0.1, ..good },
                "lr_decay is -0.1, but must be a number not below 0",
            ),
            (
                AdagradOptions { weight_decay: -0.1, ..good },
                "weight_decay is -0.1, but must be a number not below 0",
            ),
            (
                AdagradOptions { initial_accumulator_value: -0.1, ..good },
                "initial_accumulator_value is -0.1, but must be a number not below 0",
            ),
        ] {
            let refused = Adagrad::from_named_parameters(Vec::new(), options).unwrap_err();
            assert_eq!(refused.to_string(), message);
        }
    }
}
