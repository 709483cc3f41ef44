//! RMSprop: `torch.optim.RMSprop`.

use super::rule_parts::*;

optimizer_options! {
    /// PyTorch's keyword arguments of `RMSprop`, with its defaults.
    #[doc(alias = "RMSprop")]
    pub struct RmsPropOptions (momentum: momentum) {
        /// The learning rate.
        pub lr: f64 = 1e-2,
        /// The decay rate of the moving average of the squared gradient.
        pub alpha: f64 = 0.99,
        /// Added to the denominator of a step, which could be 0.
        pub eps: f64 = 1e-8,
        /// Weight decay (L2 penalty, added to the gradient).
        pub weight_decay: f64 = 0.0,
        /// Momentum: the fraction of the last step that is kept; with 0, it uses no memory.
        pub momentum: f64 = 0.0,
        /// Whether to divide by the gradient's standard deviation, which takes a moving average of
        /// the gradient too, instead of its root mean square.
        pub centered: bool = false,
    }
}

/// `torch.optim.RMSprop`, bit for bit: a step is the gradient divided by the root of the moving average of its square.
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

impl UpdateRule for RmsPropOptions {
    fn name(&self) -> &'static str {
        "RMSprop"
    }

    fn check(&self) -> Result<()> {
        check_not_negative(&named!(self.lr, self.alpha, self.eps, self.weight_decay, self.momentum))
    }

    fn state_layout(&self) -> Vec<(&'static str, StateShape)> {
        let mut layout = vec![("step", Scalar), ("square_avg", Parameter)];
        layout.extend((self.momentum > 0.0).then_some(("momentum_buffer", Parameter)));
        layout.extend(self.centered.then_some(("grad_avg", Parameter)));
        layout
    }

    /// `_single_tensor_rmsprop` and `_multi_tensor_rmsprop`
    fn step(&self, mut step: Step<'_>) -> Result<()> {
        let Self { lr, alpha, eps, momentum, .. } = *self;
        step.count()?;
        let mut square_avgs = step.zeros_like("square_avg")?;
        let (mut weights, gradients) = WeightDecay::Penalty(self.weight_decay).apply(&step)?;
        average_squares_(&mut square_avgs, &gradients, alpha)?;
        let mut denominators = if self.centered {
            let mut grad_avgs = step.zeros_like("grad_avg")?;
            grad_avgs.lerp_(&gradients, 1.0 - alpha)?;
            let mut variances = square_avgs.addcmul(&grad_avgs, &grad_avgs, -1.0)?;
            variances.sqrt_()?;
            variances
        } else {
            square_avgs.sqrt()?
        };
        denominators.add_number_(eps)?;
        if momentum > 0.0 {
            let mut buffers = step.zeros_like("momentum_buffer")?;
            buffers.mul_number_(momentum)?;
            buffers.addcdiv_(&gradients, &denominators, 1.0)?;
            weights.add_scaled_(&buffers, -lr)
        } else {
            weights.addcdiv_(&gradients, &denominators, -lr)
        }
    }
}
