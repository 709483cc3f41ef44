//! NAdam: `torch.optim.NAdam`.

use super::rule_parts::*;
use tch::{Tensor, kind::FLOAT_CPU};

adam_options! {
    /// PyTorch's keyword arguments of `NAdam`, with its defaults.
    pub struct NAdamOptions(lr = 2e-3) {
        /// How fast the momentum of the schedule grows to `betas.0` from half of it.
        pub momentum_decay: f64 = 4e-3,
    }
}

/// `torch.optim.NAdam`, bit for bit: Adam with Nesterov momentum, which looks one step ahead.
pub type NAdam = ParamGroupOptimizer<NAdamOptions>;

impl UpdateRule for NAdamOptions {
    fn name(&self) -> &'static str {
        "NAdam"
    }

    fn check(&self) -> Result<()> {
        check_betas(self.betas)?;
        check_not_negative(&named!(self.lr, self.eps, self.weight_decay, self.momentum_decay))
    }

    fn state_layout(&self) -> Vec<(&'static str, StateShape)> {
        let mut layout = ADAM_STATE.to_vec();
        layout.insert(1, ("mu_product", Scalar));
        layout
    }

    /// `_single_tensor_nadam` and `_multi_tensor_nadam`
    fn step(&self, mut step: Step<'_>) -> Result<()> {
        let Self { lr, betas: (_, beta2), eps, .. } = *self;
        let steps = step.count()?;
        let mus = each(&steps, |step| self.mu(step));
        let mut mu_products =
            step.get_or_insert_with("mu_product", |_| Tensor::f_ones([0; 0], FLOAT_CPU))?;
        mu_products.mul_numbers_(&mus)?;
        let decay = WeightDecay::new(self.weight_decay, self.decoupled_weight_decay, lr);
        let (mut weights, gradients) = decay.apply_to_real(&step)?;
        let (exp_avgs, exp_avg_sqs) = moments(&mut step, &gradients, self.betas)?;
        let bias_correction2 = each(&steps, |step| 1.0 - beta2.powf(step));
        let mut denominators;
        if exp_avg_sqs.is_foreach() {
            denominators = exp_avg_sqs.sqrt()?;
            denominators.div_numbers_(&each(&bias_correction2, power_of_a_half))?;
        } else {
            denominators = exp_avg_sqs.copy()?;
            denominators.div_numbers_(&bias_correction2)?;
            denominators.sqrt_()?;
        }
        denominators.add_number_(eps)?;
        let (mut of_gradients, mut of_averages) = (Vec::new(), Vec::new());
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
