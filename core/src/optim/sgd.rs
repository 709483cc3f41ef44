//! Stochastic gradient descent: `torch.optim.SGD`.

use super::optimizer::{Optimizer, OptimizerState, check_not_negative, trainable};
use super::parameter_states::{ParameterStates, StateLayout};
use crate::{Error, Result};
use c10d_sys::tensor::add_scaled_;
use serde::{Deserialize, Serialize};
use tch::Tensor;
use tch::nn::VarStore;

/// PyTorch's keyword arguments of `SGD`, with its defaults.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct SgdOptions {
    /// The learning rate: a step is the gradient times this.
    pub lr: f64,
    /// Momentum: the fraction of the last step that is kept; with 0, it uses no memory.
    pub momentum: f64,
    /// Dampening: the fraction of the gradient that does not enter the momentum.
    pub dampening: f64,
    /// Weight decay (L2 penalty, added to the gradient).
    pub weight_decay: f64,
    /// Nesterov momentum, which looks one step ahead; requires momentum and no dampening.
    pub nesterov: bool,
}

impl Default for SgdOptions {
    fn default() -> Self {
        SgdOptions { lr: 1e-3, momentum: 0.0, dampening: 0.0, weight_decay: 0.0, nesterov: false }
    }
}

/// `torch.optim.SGD`, bit for bit: the operations of its `_single_tensor_sgd`, in their order.
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
#[derive(Debug)]
pub struct Sgd {
    options: SgdOptions,
    states: ParameterStates<1>,
}

/// The class of the state.
const NAME: &str = "SGD";

impl Sgd {
    /// An optimizer for the trainable variables of `vs`.
    ///
    /// # Errors
    /// [`Error::Argument`] for values that PyTorch refuses too, and for a store without parameters.
    pub fn new(vs: &VarStore, options: SgdOptions) -> Result<Self> {
        Self::from_named_parameters(trainable(vs)?, options)
    }

    /// An optimizer for these parameters; the list may be empty. The state uses their names.
    ///
    /// # Errors
    /// [`Error::Argument`] for values that PyTorch refuses too.
    pub fn from_named_parameters(
        parameters: Vec<(String, Tensor)>,
        options: SgdOptions,
    ) -> Result<Self> {
        options.check()?;
        let layout = StateLayout {
            names: ["momentum_buffer"],
            fresh: |tensor| Ok([tensor.f_zeros_like()?]),
        };
        Ok(Sgd { options, states: ParameterStates::new(parameters, layout) })
    }
}

impl Optimizer for Sgd {
    fn step(&mut self) -> Result<()> {
        let options = &self.options;
        self.states.step(|parameter, gradient, state| step(options, parameter, gradient, state))
    }

    fn parameters(&self) -> Vec<Tensor> {
        self.states.tensors()
    }

    fn lr(&self) -> f64 {
        self.options.lr
    }

    fn set_lr(&mut self, lr: f64) {
        self.options.lr = lr;
    }

    /// The tensors are the momentum buffers, named `PARAMETER.momentum_buffer`. There are none
    /// without momentum, or before the first step.
    fn state_dict(&self) -> Result<OptimizerState> {
        OptimizerState::new(NAME, &self.options, self.states.named())
    }

    fn load_state_dict(&mut self, state: &OptimizerState) -> Result<()> {
        let options = state.options_for(NAME)?;
        self.states.load(&state.tensors)?;
        self.options = options;
        Ok(())
    }

    /// The size of the parameters that have made a step with momentum.
    fn state_bytes(&self) -> usize {
        self.states.bytes()
    }
}

/// `_single_tensor_sgd` for one parameter; its state is its momentum buffer.
fn step(
    options: &SgdOptions,
    parameter: &mut Tensor,
    mut gradient: Tensor,
    state: &mut Option<[Tensor; 1]>,
) -> Result<()> {
    if options.weight_decay != 0.0 {
        gradient = gradient.copy();
        add_scaled_(&mut gradient, parameter, options.weight_decay)
            .map_err(Error::engine("step"))?;
    }
    if options.momentum != 0.0 {
        let buffer = match state {
            Some([buffer]) => {
                let _ = buffer.f_mul_scalar_(options.momentum).map_err(Error::tensor("step"))?;
                add_scaled_(buffer, &gradient, 1.0 - options.dampening)
                    .map_err(Error::engine("step"))?;
                buffer
            }
            // The first step initialises it with the gradient itself.
            none => &mut none.insert([gradient.copy()])[0],
        };
        gradient = if options.nesterov {
            let mut ahead = gradient.copy();
            add_scaled_(&mut ahead, buffer, options.momentum).map_err(Error::engine("step"))?;
            ahead
        } else {
            buffer.shallow_clone()
        };
    }
    add_scaled_(parameter, &gradient, -options.lr).map_err(Error::engine("step"))
}

impl SgdOptions {
    fn check(&self) -> Result<()> {
        check_not_negative(&[
            ("lr", self.lr),
            ("momentum", self.momentum),
            ("weight_decay", self.weight_decay),
        ])?;
        if self.nesterov && (self.momentum == 0.0 || self.dampening != 0.0) {
            return Err(Error::Argument {
                what: "nesterov".into(),
                found: format!(
                    "set with momentum {} and dampening {}",
                    self.momentum, self.dampening
                ),
                expected: "used with a momentum above 0 and a dampening of 0".into(),
            });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::problem::Problem;
    use super::super::{Adam, AdamOptions};
    use super::*;
    use std::ops::Range;
    use tch::nn::{self, OptimizerConfig};
    use tch::{Device, Kind};

    const VARIANTS: [SgdOptions; 5] = {
        let plain = SgdOptions {
            lr: 0.1,
            momentum: 0.0,
            dampening: 0.0,
            weight_decay: 0.0,
            nesterov: false,
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
            let SgdOptions { lr, momentum, dampening, weight_decay, nesterov } = options;
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
    fn the_options_go_with_the_state() {
        let vs = Problem::new().vs;
        let mut before = Sgd::new(&vs, VARIANTS[4]).unwrap();
        before.set_lr(0.1 + 0.2);
        let mut after = Sgd::new(&vs, VARIANTS[0]).unwrap();
        after.load_state_dict(&before.state_dict().unwrap()).unwrap();
        assert_eq!(after.options, SgdOptions { lr: 0.1 + 0.2, ..VARIANTS[4] });
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

    #[test]
    fn what_pytorch_refuses_is_refused() {
        let vs = Problem::new().vs;
        let refused = |options| Sgd::new(&vs, options).unwrap_err().to_string();
        let options = SgdOptions { lr: -1.0, ..Default::default() };
        assert_eq!(refused(options), "lr is -1, but must be a number not below 0");
        let options = SgdOptions { lr: f64::NAN, ..Default::default() };
        assert_eq!(refused(options), "lr is NaN, but must be a number not below 0");
        let options = SgdOptions { nesterov: true, ..Default::default() };
        assert_eq!(
            refused(options),
            "nesterov is set with momentum 0 and dampening 0, but must be used with a momentum \
             above 0 and a dampening of 0"
        );
        let nothing = VarStore::new(Device::Cpu);
        let error = Sgd::new(&nothing, SgdOptions::default()).unwrap_err().to_string();
        assert!(error.contains("without a trainable variable"), "{error}");
    }
}
