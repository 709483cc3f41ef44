//! Stochastic gradient descent: `torch.optim.SGD`.

use super::rule_parts::*;
use c10d_sys::arithmetic::{add_scaled_, copy, mul_number_};

options! {
    /// PyTorch's keyword arguments of `SGD`, with its defaults.
    #[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
    pub struct SgdOptions {
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
        /// Whether to maximize the objective instead of minimizing it.
        pub maximize: bool = false,
        /// Whether to update parameters in lists; see [`GroupOptions::foreach`].
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub foreach: Option<bool> = None,
    }
}

/// `torch.optim.SGD`, bit for bit: the operations of its `_single_tensor_sgd` and, on GPUs,
/// `_multi_tensor_sgd`, in their order. Unlike the latter with Nesterov momentum, it leaves the
/// gradients as they are.
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

group_options!(SgdOptions { lr, momentum: momentum, maximize, foreach });

impl UpdateRule for SgdOptions {
    fn name(&self) -> &'static str {
        "SGD"
    }

    fn check(&self) -> Result<()> {
        check_not_negative(&named!(self.lr, self.momentum, self.weight_decay))?;
        let Self { momentum, dampening, nesterov, .. } = *self;
        check(
            !nesterov || (momentum != 0.0 && dampening == 0.0),
            "nesterov",
            format!("set with momentum {momentum} and dampening {dampening}"),
            "used with a momentum above 0 and a dampening of 0",
        )
    }

    /// None without momentum, or before the first step.
    fn state_layout(&self) -> Vec<(&'static str, StateShape)> {
        vec![("momentum_buffer", Parameter)]
    }

    fn gradient_layout(&self) -> GradientLayout {
        GradientLayout::Any
    }

    /// `_single_tensor_sgd` and `_multi_tensor_sgd`
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

#[cfg(test)]
mod tests {
    use super::super::problem::Problem;
    use super::super::{Adam, AdamOptions, Optimizer, OptimizerState};
    use super::*;
    use std::ops::Range;
    use tch::nn::VarStore;
    use tch::nn::{self, OptimizerConfig};
    use tch::{Device, Kind, Tensor};

    const VARIANTS: [SgdOptions; 5] = {
        let plain = SgdOptions {
            lr: 0.1,
            momentum: 0.0,
            dampening: 0.0,
            weight_decay: 0.0,
            nesterov: false,
            maximize: false,
            foreach: None,
        };
        [
            plain,
            SgdOptions { weight_decay: 0.01, ..plain },
            SgdOptions { momentum: 0.9, ..plain },
            SgdOptions { momentum: 0.9, dampening: 0.3, weight_decay: 0.01, ..plain },
            SgdOptions { momentum: 0.9, weight_decay: 0.01, nesterov: true, ..plain },
        ]
    };

    fn run(problem: &Problem, optimizer: &mut Sgd, steps: Range<i64>) {
        problem.run(steps, || {
            optimizer.step()?;
            optimizer.zero_grad()
        });
    }

    #[test]
    fn steps_are_those_of_pytorchs_cpp_optimizer_to_the_last_bit() {
        for options in VARIANTS {
            let (ours, theirs) = (Problem::new(), Problem::new());
            run(&ours, &mut Sgd::new(&ours.vs, options).unwrap(), 0..10);
            let SgdOptions { lr, momentum, dampening, weight_decay, nesterov, .. } = options;
            let mut reference =
                nn::sgd(momentum, dampening, weight_decay, nesterov).build(&theirs.vs, lr).unwrap();
            theirs.run(0..10, || {
                reference.step();
                reference.zero_grad();
                Ok(())
            });
            assert_eq!(ours.weights(), theirs.weights(), "{options:?}");
        }
    }

    #[test]
    fn a_run_goes_on_from_a_saved_state_as_if_it_had_not_been_interrupted() {
        for options in VARIANTS {
            let (whole, interrupted) = (Problem::new(), Problem::new());
            run(&whole, &mut Sgd::new(&whole.vs, options).unwrap(), 0..10);
            let mut before = Sgd::new(&interrupted.vs, options).unwrap();
            run(&interrupted, &mut before, 0..4);
            let mut after = Sgd::new(&interrupted.vs, options).unwrap();
            after.load_state_dict(&before.state_dict().unwrap()).unwrap();
            run(&interrupted, &mut after, 4..10);
            assert_eq!(whole.weights(), interrupted.weights(), "{options:?}");
        }
    }

    #[test]
    fn a_state_of_another_model_is_refused() {
        let problem = Problem::new();
        let mut optimizer = Sgd::new(&problem.vs, VARIANTS[2]).unwrap();
        let zeros = Tensor::zeros([2], (Kind::Float, Device::Cpu));
        for (name, expected) in [
            ("other.momentum_buffer", "for a parameter of this model"),
            ("weight.momentum_buffer", "of shape [3, 5]"),
        ] {
            let tensors = vec![(name.to_owned(), zeros.shallow_clone())];
            let state = OptimizerState { tensors, ..optimizer.state_dict().unwrap() };
            let error = optimizer.load_state_dict(&state).unwrap_err().to_string();
            assert!(error.ends_with(expected), "{error}");
        }
    }

    #[test]
    fn a_state_of_another_optimizer_is_refused() {
        let problem = Problem::new();
        let adam = Adam::new(&problem.vs, AdamOptions::default()).unwrap();
        let mut optimizer = Sgd::new(&problem.vs, VARIANTS[0]).unwrap();
        let error = optimizer.load_state_dict(&adam.state_dict().unwrap()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the optimizer state is that of Adam, but must be that of SGD, which is this optimizer"
        );
    }

    #[test]
    fn a_sparse_momentum_of_another_shape_is_refused() {
        let vs = VarStore::new(Device::Cpu);
        let table = vs.root().ones("table", &[5, 2]);
        let mut optimizer = Sgd::new(&vs, VARIANTS[2]).unwrap();
        let words = Tensor::from_slice(&[1i64, 3]);
        Tensor::embedding(&table, &words, -1, false, true).sum(Kind::Float).backward();
        optimizer.step().unwrap();
        let mut state = optimizer.state_dict().unwrap();
        assert!(state.tensors[0].1.is_sparse());
        optimizer.load_state_dict(&state).unwrap();
        let smaller = Tensor::ones([4, 2], (Kind::Float, Device::Cpu));
        state.tensors[0].1 = smaller.to_sparse_sparse_dim(1);
        assert_eq!(
            optimizer.load_state_dict(&state).unwrap_err().to_string(),
            "table.momentum_buffer is of shape [4, 2], but must be of shape [5, 2]"
        );
    }

    #[test]
    fn the_options_go_with_the_state() {
        let vs = Problem::new().vs;
        let mut before = Sgd::new(&vs, VARIANTS[4]).unwrap();
        before.set_lr(0.1 + 0.2);
        let mut after = Sgd::new(&vs, VARIANTS[0]).unwrap();
        after.load_state_dict(&before.state_dict().unwrap()).unwrap();
        assert_eq!(after.param_groups()[0].options, SgdOptions { lr: 0.1 + 0.2, ..VARIANTS[4] });
    }

    #[test]
    fn a_state_that_could_not_be_loaded_again_is_not_given() {
        let mut optimizer = Sgd::new(&Problem::new().vs, VARIANTS[0]).unwrap();
        for lr in [f64::INFINITY, f64::NAN] {
            optimizer.set_lr(lr);
            let error = optimizer.state_dict().unwrap_err().to_string();
            assert!(error.starts_with("the options of SGD is {"), "{error}");
            assert!(error.contains(r#""lr":null"#), "{error}");
        }
    }

    #[test]
    fn a_parameter_without_a_gradient_stays_as_it_is() {
        let problem = Problem::new();
        let before = problem.weights();
        Sgd::new(&problem.vs, VARIANTS[4]).unwrap().step().unwrap();
        assert_eq!(before, problem.weights());
    }

    #[test]
    fn momentum_occupies_as_much_as_the_parameters_and_its_lack_nothing() {
        let problem = Problem::new();
        for (options, bytes) in [(VARIANTS[0], 0), (VARIANTS[2], (3 * 5 + 3) * size_of::<f32>())] {
            let mut optimizer = Sgd::new(&problem.vs, options).unwrap();
            assert_eq!(optimizer.state_bytes(), 0);
            run(&problem, &mut optimizer, 0..2);
            assert_eq!(optimizer.state_bytes(), bytes);
        }
    }
}
