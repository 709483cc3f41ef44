//! Adadelta: `torch.optim.Adadelta`.

use super::optimizer::check_not_negative;
use super::param_group::GroupOptions;
use super::param_group_optimizer::ParamGroupOptimizer;
use super::parameter_state::StateShape;
use super::rule_parts::{WeightDecay, decayed};
use super::state_list::StateList;
use super::tensor_list::TensorList;
use super::update_rule::UpdateRule;
use crate::{Error, Result};
use serde::{Deserialize, Serialize};
use tch::Tensor;

/// PyTorch's keyword arguments of `Adadelta`, with its defaults.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct AdadeltaOptions {
    /// The learning rate: what a step is multiplied by in the end.
    pub lr: f64,
    /// The decay rate of the moving averages of the squares of the gradient and of the steps.
    pub rho: f64,
    /// Added under both roots.
    pub eps: f64,
    /// Weight decay (L2 penalty, added to the gradient).
    pub weight_decay: f64,
    /// Whether to maximize the objective instead of minimizing it.
    pub maximize: bool,
    /// Whether to update parameters in lists; see [`UpdateRule::foreach`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub foreach: Option<bool>,
}

impl Default for AdadeltaOptions {
    fn default() -> Self {
        AdadeltaOptions {
            lr: 1.0,
            rho: 0.9,
            eps: 1e-6,
            weight_decay: 0.0,
            maximize: false,
            foreach: None,
        }
    }
}

/// `torch.optim.Adadelta`, bit for bit: a step is the gradient, scaled from the root mean square
/// of the last gradients to that of the last steps.
pub type Adadelta = ParamGroupOptimizer<AdadeltaOptions>;

impl GroupOptions for AdadeltaOptions {
    fn lr(&self) -> f64 {
        self.lr
    }

    fn set_lr(&mut self, lr: f64) {
        self.lr = lr;
    }
}

impl UpdateRule for AdadeltaOptions {
    fn name(&self) -> &'static str {
        "Adadelta"
    }

    fn foreach(&self) -> Option<bool> {
        self.foreach
    }

    fn check(&self) -> Result<()> {
        if !(0.0..=1.0).contains(&self.rho) {
            return Err(Error::argument("rho", self.rho, "a number from 0 to 1"));
        }
        check_not_negative(&[
            ("lr", self.lr),
            ("eps", self.eps),
            ("weight_decay", self.weight_decay),
        ])
    }

    fn state_layout(&self) -> Vec<(&'static str, StateShape)> {
        vec![
            ("step", StateShape::Scalar),
            ("square_avg", StateShape::Parameter),
            ("acc_delta", StateShape::Parameter),
        ]
    }

    /// `_single_tensor_adadelta` and `_multi_tensor_adadelta`
    fn step(
        &self,
        parameters: &mut TensorList,
        gradients: &TensorList,
        states: &mut StateList<'_>,
    ) -> Result<()> {
        let AdadeltaOptions { lr, rho, eps, .. } = *self;
        states.count_step()?;
        let mut square_avgs = states.zeros_like("square_avg", parameters)?.as_real()?;
        let mut acc_deltas = states.zeros_like("acc_delta", parameters)?.as_real()?;
        let decay = WeightDecay::Penalty(self.weight_decay);
        let (mut weights, gradients) = decayed(parameters, gradients, self.maximize, decay)?;
        let root = |averages: &TensorList| {
            let mut roots = averages.add_number(eps)?;
            roots.sqrt_()?;
            Ok::<_, Error>(roots)
        };
        let add_squares = |averages: &mut TensorList, values: &TensorList| {
            averages.mul_number_(rho)?;
            averages.addcmul_(values, values, 1.0 - rho)
        };
        add_squares(&mut square_avgs, &gradients)?;
        let mut deltas = root(&acc_deltas)?;
        deltas.div_(&root(&square_avgs)?)?;
        deltas.mul_(&gradients)?;
        add_squares(&mut acc_deltas, &deltas)?;
        // The single-tensor function goes back to complex numbers here, which rounds differently.
        if !parameters.is_foreach() && parameters.iter().any(Tensor::is_complex) {
            return parameters.add_scaled_(&deltas.as_complex()?, -lr);
        }
        weights.add_scaled_(&deltas, -lr)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_pytorch_refuses_is_refused() {
        let good = AdadeltaOptions::default();
        for (options, message) in [
            (AdadeltaOptions { lr: -0.1, ..good }, "lr is -0.1, but must be a number not below 0"),
            (
                AdadeltaOptions { eps: f64::NAN, ..good },
                "eps is NaN, but must be a number not below 0",
            ),
            (
                AdadeltaOptions { weight_decay: -0.1, ..good },
                "weight_decay is -0.1, but must be a number not below 0",
            ),
            (AdadeltaOptions { rho: 1.1, ..good }, "rho is 1.1, but must be a number from 0 to 1"),
        ] {
            let refused = Adadelta::from_named_parameters(Vec::new(), options).unwrap_err();
            assert_eq!(refused.to_string(), message);
        }
    }
}
