//! RMSprop: `torch.optim.RMSprop`.

use super::optimizer::check_not_negative;
use super::param_group::GroupOptions;
use super::param_group_optimizer::ParamGroupOptimizer;
use super::parameter_state::StateShape;
use super::rule_parts::{WeightDecay, decayed};
use super::state_list::StateList;
use super::tensor_list::TensorList;
use super::update_rule::UpdateRule;
use crate::Result;
use serde::{Deserialize, Serialize};

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
    /// Whether to update parameters in lists; see [`UpdateRule::foreach`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub foreach: Option<bool>,
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
            foreach: None,
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

    fn foreach(&self) -> Option<bool> {
        self.foreach
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

    /// `_single_tensor_rmsprop` and `_multi_tensor_rmsprop`
    fn step(
        &self,
        parameters: &mut TensorList,
        gradients: &TensorList,
        states: &mut StateList<'_>,
    ) -> Result<()> {
        let RmsPropOptions { lr, alpha, eps, momentum, .. } = *self;
        states.count_step()?;
        let mut square_avgs = states.zeros_like("square_avg", parameters)?.as_real()?;
        let decay = WeightDecay::Penalty(self.weight_decay);
        let (mut weights, gradients) = decayed(parameters, gradients, self.maximize, decay)?;
        square_avgs.mul_number_(alpha)?;
        square_avgs.addcmul_(&gradients, &gradients, 1.0 - alpha)?;

        let mut denominators = if self.centered {
            let mut grad_avgs = states.zeros_like("grad_avg", parameters)?.as_real()?;
            grad_avgs.lerp_(&gradients, 1.0 - alpha)?;
            let mut variances = square_avgs.addcmul(&grad_avgs, &grad_avgs, -1.0)?;
            variances.sqrt_()?;
            variances
        } else {
            square_avgs.sqrt()?
        };
        denominators.add_number_(eps)?;
        if momentum > 0.0 {
            let mut buffers = states.zeros_like("momentum_buffer", parameters)?.as_real()?;
            buffers.mul_number_(momentum)?;
            buffers.addcdiv_(&gradients, &denominators, 1.0)?;
            weights.add_scaled_(&buffers, -lr)
        } else {
            weights.addcdiv_(&gradients, &denominators, -lr)
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
