//! Stochastic gradient descent: `torch.optim.SGD`.

use super::rule_parts::*;
use c10d_sys::arithmetic::{add_scaled_, copy, mul_number_};

optimizer_options! {
    /// PyTorch's keyword arguments of `SGD`, with its defaults.
    pub struct SgdOptions (momentum: momentum) {
        /// The learning rate: a step is the gradient times this.
        pub lr: f64 = 1e-3,
        /// Momentum: the fraction of the last step that is kept; with 0, it uses no memory.
        pub momentum: f64 = 0.0,
        /// Dampening: the fraction of the gradient that does not enter the momentum.
        pub dampening: f64 = 0.0,
        /// Weight decay (L2 penalty, added to the gradient).
        pub weight_decay: f64 = 0.0,
        /// Nesterov momentum, which looks one step ahead; requires momentum and no dampening.
        pub nesterov: bool = false,
    }
}

/// `torch.optim.SGD`, bit for bit: the operations of its `_single_tensor_sgd` and, on GPUs, `_multi_tensor_sgd`, in
/// their order. Unlike the latter with Nesterov momentum, it leaves the gradients as they are.
///
/// tch's own optimizer computes the same, but its momentum cannot be saved.
///
/// ```
/// use tch::{Device, nn::VarStore};
/// use tch_parallel::optim::{Optimizer, Sgd, SgdOptions};
///
/// let vs = VarStore::new(Device::Cpu);
/// let weight = vs.root().ones("weight", &[3]);
/// let mut optimizer = Sgd::new(&vs, SgdOptions { lr: 0.5, momentum: 0.9, ..Default::default() })?;
/// let loss = (&weight * &weight).sum(tch::Kind::Float);
/// optimizer.zero_grad()?;
/// loss.backward();
/// optimizer.step()?;
/// assert_eq!(weight.double_value(&[0]), 0.0); // 1 - 0.5 * 2
/// assert_eq!(optimizer.state_bytes(), 12); // the momentum of three floats
/// # Ok::<(), tch_parallel::Error>(())
/// ```
pub type Sgd = ParamGroupOptimizer<SgdOptions>;

impl UpdateRule for SgdOptions {
    fn name(&self) -> &'static str {
        "SGD"
    }

    fn check(&self) -> Result<()> {
        check_not_negative(&named!(self.lr, self.momentum, self.weight_decay))?;
        let Self { momentum, dampening, nesterov, .. } = *self;
        let found = format_args!("set with momentum {momentum} and dampening {dampening}");
        let expected = "used with a momentum above 0 and a dampening of 0";
        check(!nesterov || (momentum != 0.0 && dampening == 0.0), "nesterov", found, expected)
    }

    /// None without momentum, or before the first step.
    fn state_layout(&self) -> Vec<(&'static str, StateShape)> {
        vec![("momentum_buffer", Parameter)]
    }

    fn gradient_layout(&self) -> GradientLayout {
        GradientLayout::Any
    }

    fn step(&self, mut step: Step<'_>) -> Result<()> {
        let mut gradients = step.gradients.shallow_clone();
        if self.weight_decay != 0.0 {
            gradients = gradients.add_scaled(&step.parameters, self.weight_decay)?;
        }
        if self.momentum != 0.0 {
            let buffers = self.momentum_buffers(&gradients, &mut step)?;
            gradients = match self.nesterov {
                true => gradients.add_scaled(&buffers, self.momentum)?,
                false => buffers,
            };
        }
        step.parameters.add_scaled_(&gradients, -self.lr)
    }
}

impl SgdOptions {
    /// The momentum with these gradients in it.
    fn momentum_buffers(&self, gradients: &TensorList, step: &mut Step<'_>) -> Result<TensorList> {
        const NAME: &str = "momentum_buffer";
        if let Some(mut buffers) = step.get(NAME) {
            buffers.mul_number_(self.momentum)?;
            buffers.add_scaled_(gradients, 1.0 - self.dampening)?;
            return Ok(buffers);
        }
        let mut buffers = Vec::new();
        for (state, gradient) in step.states.iter_mut().zip(gradients.iter()) {
            buffers.push(match state.get(NAME) {
                Some(mut buffer) => {
                    mul_number_(&mut buffer, self.momentum)?;
                    add_scaled_(&mut buffer, gradient, 1.0 - self.dampening)?;
                    buffer
                }
                // The first step initialises it with the gradient itself.
                None => state.get_or_insert_with(NAME, || copy(gradient))?,
            });
        }
        Ok(TensorList::new(buffers, gradients.is_foreach()))
    }
}
