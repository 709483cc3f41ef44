//! Adagrad: `torch.optim.Adagrad`.

use super::{rule_parts::*, tensor_list::as_real};
use c10d_sys::arithmetic::{add_number_, add_scaled_};
use tch::{TchError, Tensor};

optimizer_options! {
    /// PyTorch's keyword arguments of `Adagrad`, with its defaults.
    pub struct AdagradOptions {
        /// The learning rate of the first step.
        pub lr: f64 = 1e-2,
        /// How fast the learning rate decays: after N steps it is divided by `1 + N * lr_decay`.
        pub lr_decay: f64 = 0.0,
        /// Weight decay (L2 penalty, added to the gradient). Sparse gradients do not support it.
        pub weight_decay: f64 = 0.0,
        /// The initial value of the sums of squares.
        pub initial_accumulator_value: f64 = 0.0,
        /// Added to the denominator of a step, which could be 0.
        pub eps: f64 = 1e-10,
    }
}

/// `torch.optim.Adagrad`, bit for bit: a step is the gradient divided by the root of the sum of
/// the squares of all gradients so far. Supports sparse gradients.
pub type Adagrad = ParamGroupOptimizer<AdagradOptions>;

impl UpdateRule for AdagradOptions {
    fn name(&self) -> &'static str {
        "Adagrad"
    }

    fn check(&self) -> Result<()> {
        check_not_negative(&named!(self.lr, self.lr_decay, self.weight_decay, self.eps))?;
        check_not_negative(&named!(self.initial_accumulator_value))
    }

    fn state_layout(&self) -> Vec<(&'static str, StateShape)> {
        vec![("step", Scalar), ("sum", Parameter)]
    }

    fn gradient_layout(&self) -> GradientLayout {
        GradientLayout::Any
    }

    /// `_single_tensor_adagrad` and `_multi_tensor_adagrad`
    fn step(&self, mut step: Step<'_>) -> Result<()> {
        let Self { lr, lr_decay, weight_decay, eps, .. } = *self;
        let is_sparse = step.gradients.iter().any(Tensor::is_sparse);
        let found = format_args!("{weight_decay} with a sparse gradient");
        check(weight_decay == 0.0 || !is_sparse, "weight_decay", found, "0")?;
        let sums = step.get_or_insert_with("sum", |parameter| self.initial_sum(parameter))?;
        let steps = step.count()?;
        let rates = each(&steps, |step| -(lr / (1.0 + (step - 1.0) * lr_decay)));
        if is_sparse {
            return self.sparse_step(step, sums, &rates);
        }
        let (mut weights, mut gradients) = WeightDecay::Penalty(weight_decay).apply(&step)?;
        let mut sums = sums.as_real()?;
        sums.addcmul_(&gradients, &gradients, 1.0)?;
        let mut denominators = sums.sqrt()?;
        denominators.add_number_(eps)?;
        if weights.is_foreach() {
            // On the CPU, the two products round 16-bit numbers differently. The parameter's own gradient must stay.
            if weight_decay != 0.0 || self.maximize {
                gradients.mul_numbers_(&rates)?;
            } else {
                gradients = gradients.mul_numbers(&rates)?;
            }
            weights.addcdiv_(&gradients, &denominators, 1.0)
        } else {
            weights.addcdiv_numbers_(&gradients, &denominators, &rates)
        }
    }
}

impl AdagradOptions {
    /// Only the values that the gradients contain, and their sums, change.
    fn sparse_step(&self, step: Step<'_>, mut sums: TensorList, rates: &[f64]) -> Result<()> {
        let Step { mut parameters, gradients, .. } = step;
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
