//! Adam and AdamW: `torch.optim.Adam`.

use super::rule_parts::*;

adam_options! {
    /// PyTorch's keyword arguments of `Adam`, with its defaults.
    pub struct AdamOptions(lr = 1e-3) {
        /// Whether to divide by the largest of the moving averages of the square so far, instead of
        /// the last (Reddi et al., "On the Convergence of Adam and Beyond", 2018).
        pub amsgrad: bool = false,
    }
}

impl AdamOptions {
    /// The defaults of `torch.optim.AdamW`, which is Adam with another kind of weight decay.
    #[doc(alias = "AdamW")]
    pub fn adamw() -> Self {
        AdamOptions { weight_decay: 1e-2, decoupled_weight_decay: true, ..Default::default() }
    }
}

/// `torch.optim.Adam`, bit for bit: the operations of `_single_tensor_adam`, which Python runs on
/// the CPU, and of `_multi_tensor_adam`, which it runs on GPUs, in their order.
///
/// tch's Adam rounds differently and cannot save its state. `torch.optim.AdamW` is this with [`AdamOptions::adamw`].
///
/// ```
/// use tch::{Device, nn::VarStore};
/// use tch_parallel::optim::{Adam, AdamOptions, Optimizer};
///
/// let vs = VarStore::new(Device::Cpu);
/// let weight = vs.root().ones("weight", &[3]);
/// let mut optimizer = Adam::new(&vs, AdamOptions { lr: 0.1, ..Default::default() })?;
/// let loss = (&weight * &weight).sum(tch::Kind::Float);
/// optimizer.zero_grad()?;
/// loss.backward();
/// optimizer.step()?;
/// // The first step is as long as the learning rate, whatever the gradient.
/// assert!((weight.double_value(&[0]) - 0.9).abs() < 1e-6);
/// # Ok::<(), tch_parallel::Error>(())
/// ```
pub type Adam = ParamGroupOptimizer<AdamOptions>;

impl UpdateRule for AdamOptions {
    /// PyTorch has two classes, by the kind of weight decay.
    fn name(&self) -> &'static str {
        if self.decoupled_weight_decay { "AdamW" } else { "Adam" }
    }

    fn check(&self) -> Result<()> {
        check_not_negative(&named!(self.lr, self.eps, self.weight_decay))?;
        check_betas(self.betas)
    }

    fn state_layout(&self) -> Vec<(&'static str, StateShape)> {
        let mut layout = ADAM_STATE.to_vec();
        layout.extend(self.amsgrad.then_some(("max_exp_avg_sq", Parameter)));
        layout
    }

    fn step(&self, mut step: Step<'_>) -> Result<()> {
        let Self { lr, betas: (beta1, beta2), eps, .. } = *self;
        let steps = step.count()?;
        let decay = WeightDecay::new(self.weight_decay, self.decoupled_weight_decay, lr);
        let (mut weights, gradients) = decay.apply(&step)?;
        let (exp_avgs, mut exp_avg_sqs) = moments(&mut step, &gradients, self.betas)?;
        if self.amsgrad {
            let mut largest = step.zeros_like("max_exp_avg_sq")?;
            largest.maximum_(&exp_avg_sqs)?;
            exp_avg_sqs = largest;
        }
        let bias_correction2 = each(&steps, |step| power_of_a_half(1.0 - beta2.powf(step)));
        let mut denominators = exp_avg_sqs.sqrt()?;
        denominators.div_numbers_(&bias_correction2)?;
        denominators.add_number_(eps)?;
        let step_sizes = each(&steps, |step| -(lr / (1.0 - beta1.powf(step))));
        weights.addcdiv_numbers_(&exp_avgs, &denominators, &step_sizes)
    }
}
