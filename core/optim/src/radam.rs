//! RAdam: `torch.optim.RAdam`.

use super::rule_parts::*;
use c10d_sys::arithmetic::{add_number_, mul_number_};

adam_options! {
    /// PyTorch's keyword arguments of `RAdam`, with its defaults.
    pub struct RAdamOptions(lr = 1e-3) {}
}

/// `torch.optim.RAdam`, bit for bit: Adam that divides by the average of the squares only once enough steps are in it.
pub type RAdam = ParamGroupOptimizer<RAdamOptions>;

impl UpdateRule for RAdamOptions {
    fn name(&self) -> &'static str {
        "RAdam"
    }

    fn check(&self) -> Result<()> {
        check_betas(self.betas)?;
        check_not_negative(&named!(self.lr, self.eps, self.weight_decay))
    }

    fn state_layout(&self) -> Vec<(&'static str, StateShape)> {
        ADAM_STATE.to_vec()
    }

    /// `_single_tensor_radam` and `_multi_tensor_radam`
    fn step(&self, mut step: Step<'_>) -> Result<()> {
        let steps = step.count()?;
        let decay = WeightDecay::new(self.weight_decay, self.decoupled_weight_decay, self.lr);
        let (mut weights, gradients) = decay.apply_to_real(&step)?;
        let (exp_avgs, exp_avg_sqs) = moments(&mut step, &gradients, self.betas)?;
        drop(gradients);
        if weights.is_foreach() {
            weights.addcmul_(&exp_avgs, &self.rates(&steps, &exp_avg_sqs)?, 1.0)
        } else {
            weights.add_scaled_(&self.updates(&steps, &exp_avgs, &exp_avg_sqs)?, -1.0)
        }
    }
}

impl RAdamOptions {
    /// Corrects a step for the number of squares in the average. `None` as long as they are too few to divide by it.
    fn rectification(&self, step: f64) -> Option<f64> {
        let beta2 = self.betas.1;
        // The number of squares in the average, in the end and now.
        let rho_inf = 2.0 / (1.0 - beta2) - 1.0;
        let rho = rho_inf - 2.0 * step * beta2.powf(step) / (1.0 - beta2.powf(step));
        let ratio = (rho - 4.0) * (rho - 2.0) * rho_inf / ((rho_inf - 4.0) * (rho_inf - 2.0) * rho);
        (rho > 5.0).then(|| power_of_a_half(ratio))
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

    /// What the multi-tensor function multiplies the gradients' averages by, before it adds them to the parameters.
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
