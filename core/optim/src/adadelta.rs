//! Adadelta: `torch.optim.Adadelta`.

use super::rule_parts::*;
use tch::Tensor;

optimizer_options! {
    /// PyTorch's keyword arguments of `Adadelta`, with its defaults.
    pub struct AdadeltaOptions {
        /// The learning rate: what a step is multiplied by in the end.
        pub lr: f64 = 1.0,
        /// The decay rate of the moving averages of the squares of the gradient and of the steps.
        pub rho: f64 = 0.9,
        /// Added under both roots.
        pub eps: f64 = 1e-6,
        /// Weight decay (L2 penalty, added to the gradient).
        pub weight_decay: f64 = 0.0,
    }
}

/// `torch.optim.Adadelta`, bit for bit: a step is the gradient, scaled from the root mean square
/// of the last gradients to that of the last steps.
pub type Adadelta = ParamGroupOptimizer<AdadeltaOptions>;

impl UpdateRule for AdadeltaOptions {
    fn name(&self) -> &'static str {
        "Adadelta"
    }

    fn check(&self) -> Result<()> {
        check((0.0..=1.0).contains(&self.rho), "rho", self.rho, "a number from 0 to 1")?;
        check_not_negative(&named!(self.lr, self.eps, self.weight_decay))
    }

    fn state_layout(&self) -> Vec<(&'static str, StateShape)> {
        vec![("step", Scalar), ("square_avg", Parameter), ("acc_delta", Parameter)]
    }

    /// `_single_tensor_adadelta` and `_multi_tensor_adadelta`
    fn step(&self, mut step: Step<'_>) -> Result<()> {
        let Self { lr, rho, eps, weight_decay, .. } = *self;
        step.count()?;
        let mut square_avgs = step.zeros_like("square_avg")?;
        let mut acc_deltas = step.zeros_like("acc_delta")?;
        let (mut weights, gradients) = WeightDecay::Penalty(weight_decay).apply(&step)?;
        let root = |averages: &TensorList| {
            let mut roots = averages.add_number(eps)?;
            roots.sqrt_()?;
            Ok::<_, Error>(roots)
        };
        average_squares_(&mut square_avgs, &gradients, rho)?;
        let mut deltas = root(&acc_deltas)?;
        deltas.div_(&root(&square_avgs)?)?;
        deltas.mul_(&gradients)?;
        average_squares_(&mut acc_deltas, &deltas, rho)?;
        // The single-tensor function goes back to complex numbers here, which rounds differently.
        if !weights.is_foreach() && step.parameters.iter().any(Tensor::is_complex) {
            return step.parameters.add_scaled_(&deltas.as_complex()?, -lr);
        }
        weights.add_scaled_(&deltas, -lr)
    }
}
