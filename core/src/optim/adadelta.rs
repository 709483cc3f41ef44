//! Adadelta: `torch.optim.Adadelta`.

use super::optimizer::check_not_negative;
use super::param_group::GroupOptions;
use super::param_group_optimizer::ParamGroupOptimizer;
use super::rule_parts::{as_real, downwards};
use super::update_rule::{ParameterState, StateShape, UpdateRule};
use crate::{Error, Result};
use c10d_sys::arithmetic::{add_number_, add_scaled, add_scaled_, addcmul_, copy, mul_number_};
use serde::{Deserialize, Serialize};
use tch::{TchError, Tensor};

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
}

impl Default for AdadeltaOptions {
    fn default() -> Self {
        AdadeltaOptions { lr: 1.0, rho: 0.9, eps: 1e-6, weight_decay: 0.0, maximize: false }
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

    /// `_single_tensor_adadelta`
    fn step(
        &self,
        parameter: &mut Tensor,
        gradient: &Tensor,
        state: &mut ParameterState,
    ) -> Result<()> {
        let AdadeltaOptions { lr, rho, eps, weight_decay, .. } = *self;
        state.count_step()?;
        let mut gradient = downwards(gradient, self.maximize)?;
        if weight_decay != 0.0 {
            gradient = add_scaled(&gradient, parameter, weight_decay)?;
        }
        let gradient = as_real(&gradient)?;
        let mut square_avg = as_real(&state.zeros_like("square_avg", parameter)?)?;
        let mut acc_delta = as_real(&state.zeros_like("acc_delta", parameter)?)?;
        let root = |average: &Tensor| {
            let mut root = copy(average)?;
            add_number_(&mut root, eps)?;
            root.f_sqrt_()
        };
        let add_square = |average: &mut Tensor, values: &Tensor| -> Result<(), TchError> {
            mul_number_(average, rho)?;
            addcmul_(average, values, values, 1.0 - rho)
        };
        add_square(&mut square_avg, &gradient)?;
        let mut delta = root(&acc_delta)?;
        let _ = delta.f_div_(&root(&square_avg)?)?.f_mul_(&gradient)?;
        add_square(&mut acc_delta, &delta)?;
        if parameter.f_is_complex()? {
            delta = delta.f_view_as_complex()?;
        }
        Ok(add_scaled_(parameter, &delta, -lr)?)
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
