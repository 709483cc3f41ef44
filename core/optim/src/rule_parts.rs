//! What the rules of several optimizers have in common. The file of a rule imports all of it.

pub(super) use super::check::{check, check_not_negative, named};
pub(super) use super::param_group::GroupOptions;
pub(super) use super::param_group_optimizer::ParamGroupOptimizer;
pub(super) use super::parameter_state::StateShape::{self, Parameter, Scalar};
pub(super) use super::step::Step;
pub(super) use super::tensor_list::TensorList;
pub(super) use super::update_rule::{GradientLayout, UpdateRule};
pub(super) use crate::{Error, Result};
pub(super) use serde::{Deserialize, Serialize};
use std::hint::black_box;
use tch::{TchError, Tensor};
pub(super) use tch_parallel_base::options;

/// Declares the options of an optimizer, with PyTorch's defaults: those given, and `maximize` and
/// `foreach`. With them, schedules and the frame find the rate and, where given, the momentum.
macro_rules! optimizer_options {
    (
        $(#[$attribute:meta])*
        pub struct $Options:ident $((momentum: $($momentum:tt).+))? { $($options:tt)+ }
    ) => {
        options! {
            $(#[$attribute])*
            #[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
            pub struct $Options {
                $($options)+
                /// Whether to maximize the objective instead of minimizing it.
                pub maximize: bool = false,
                /// Whether to update parameters in lists; see [`GroupOptions::foreach`].
                #[serde(default, skip_serializing_if = "Option::is_none")]
                pub foreach: Option<bool> = None,
            }
        }

        group_options!($Options { lr, $(momentum: $($momentum).+,)? maximize, foreach });
    };
}
pub(super) use optimizer_options;

/// Declares the options of Adam and its variants: those that all have, with this rate, and those given.
macro_rules! adam_options {
    ($(#[$attribute:meta])* pub struct $Options:ident(lr = $lr:literal) { $($options:tt)* }) => {
        optimizer_options! {
            $(#[$attribute])*
            pub struct $Options (momentum: betas.0) {
                /// The learning rate: roughly the size of a step in every weight, whatever its gradient.
                pub lr: f64 = $lr,
                /// The decay rates of the moving averages of the gradient and of its square.
                pub betas: (f64, f64) = (0.9, 0.999),
                /// Added to the denominator of a step, which could be 0.
                pub eps: f64 = 1e-8,
                /// Weight decay.
                pub weight_decay: f64 = 0.0,
                /// Whether the decay applies directly to the parameters (AdamW), instead of being added to
                /// their gradients, where it would enter the moving averages (L2 penalty).
                pub decoupled_weight_decay: bool = false,
                $($options)*
            }
        }
    };
}
pub(super) use adam_options;

/// Implements [`GroupOptions`], given which of the options there are, and where the momentum is.
macro_rules! group_options {
    ($Options:ty { lr, $(momentum: $($momentum:tt).+,)? maximize $(, $foreach:ident)? }) => {
        impl GroupOptions for $Options {
            fn lr(&self) -> f64 {
                self.lr
            }

            fn set_lr(&mut self, lr: f64) {
                self.lr = lr;
            }

            $(
                fn momentum(&self) -> Option<f64> {
                    Some(self.$($momentum).+)
                }

                fn set_momentum(&mut self, momentum: f64) {
                    self.$($momentum).+ = momentum;
                }
            )?

            fn maximize(&self) -> bool {
                self.maximize
            }

            $(
                fn foreach(&self) -> Option<bool> {
                    self.$foreach
                }
            )?
        }
    };
}
pub(super) use group_options;

/// The number of steps, and the moving averages of the gradient and of its square.
pub(super) const ADAM_STATE: [(&str, StateShape); 3] =
    [("step", Scalar), ("exp_avg", Parameter), ("exp_avg_sq", Parameter)];

/// Weight decay: how an optimizer draws the weights towards zero.
#[derive(Debug, Clone, Copy)]
pub(super) enum WeightDecay {
    /// Added to the gradient (L2 penalty).
    Penalty(f64),
    /// Applied to the parameters, which are multiplied by this number.
    Decoupled(f64),
}

impl WeightDecay {
    /// The decay of optimizers that have both kinds.
    pub(super) fn new(weight_decay: f64, decoupled: bool, lr: f64) -> Self {
        match decoupled && weight_decay != 0.0 {
            true => WeightDecay::Decoupled(1.0 - lr * weight_decay),
            false => WeightDecay::Penalty(weight_decay),
        }
    }

    /// The parameters and the gradients after the decay, complex numbers as pairs of real ones.
    ///
    /// PyTorch's optimizers treat a complex number as two independent real ones. Some of their
    /// single-tensor functions do so only after the decay, which rounds differently.
    pub(super) fn apply(self, step: &Step<'_>) -> Result<(TensorList, TensorList)> {
        if step.parameters.is_foreach() {
            return self.apply_to_real(step);
        }
        let gradients = self.decay(&mut step.parameters.shallow_clone(), &step.gradients)?;
        Ok((step.parameters.as_real()?, gradients.as_real()?))
    }

    /// The same for optimizers whose functions all treat complex numbers as real ones before the decay.
    pub(super) fn apply_to_real(self, step: &Step<'_>) -> Result<(TensorList, TensorList)> {
        let mut parameters = step.parameters.as_real()?;
        let gradients = self.decay(&mut parameters, &step.gradients.as_real()?)?;
        Ok((parameters, gradients))
    }

    fn decay(self, parameters: &mut TensorList, gradients: &TensorList) -> Result<TensorList> {
        match self {
            WeightDecay::Penalty(0.0) => {}
            WeightDecay::Penalty(factor) => return gradients.add_scaled(parameters, factor),
            WeightDecay::Decoupled(factor) => parameters.mul_number_(factor)?,
        }
        Ok(gradients.shallow_clone())
    }
}

/// Moves averages towards the squares of these values; `decay` is what they keep of themselves.
pub(super) fn average_squares_(
    averages: &mut TensorList,
    values: &TensorList,
    decay: f64,
) -> Result<()> {
    averages.mul_number_(decay)?;
    averages.addcmul_(values, values, 1.0 - decay)
}

/// Adam's moving averages of the gradients and of their squares, with these gradients in them.
pub(super) fn moments(
    step: &mut Step<'_>,
    gradients: &TensorList,
    (beta1, beta2): (f64, f64),
) -> Result<(TensorList, TensorList)> {
    let mut exp_avgs = step.zeros_like("exp_avg")?;
    let mut exp_avg_sqs = step.zeros_like("exp_avg_sq")?;
    exp_avgs.lerp_(gradients, 1.0 - beta1)?;
    average_squares_(&mut exp_avg_sqs, gradients, beta2)?;
    Ok((exp_avgs, exp_avg_sqs))
}

pub(super) fn each(numbers: &[f64], f: impl Fn(f64) -> f64) -> Vec<f64> {
    numbers.iter().copied().map(f).collect()
}

/// Python's `number ** 0.5`, which can differ from the square root in the last bit. The compiler
/// would replace a power with a known exponent of 0.5 by the square root.
pub(super) fn power_of_a_half(number: f64) -> f64 {
    number.powf(black_box(0.5))
}

/// Refuses the same decay rates of moving averages as PyTorch.
pub(super) fn check_betas(betas: (f64, f64)) -> Result<()> {
    let checked = |what, b| check((0.0..1.0).contains(&b), what, b, "at least 0 and below 1");
    checked("betas.0", betas.0)?;
    checked("betas.1", betas.1)
}

/// A sparse tensor of the gradient's shape, with these values where the gradient has its own.
pub(super) fn with_values(gradient: &Tensor, values: &Tensor) -> Result<Tensor, TchError> {
    let (indices, size) = (gradient.f_internal_indices()?, gradient.size());
    let (place, is_coalesced) = ((values.f_kind()?, values.device()), false);
    Tensor::f_sparse_coo_tensor_indices_size(&indices, values, size, place, is_coalesced)
}
