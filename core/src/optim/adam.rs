//! Adam and AdamW: `torch.optim.Adam`.

use super::optimizer::{Optimizer, OptimizerState, check_not_negative, trainable};
use super::parameter_states::{ParameterStates, StateLayout};
use crate::{Error, Result};
use c10d_sys::tensor::{add_scaled_, addcdiv_, addcmul_};
use serde::{Deserialize, Serialize};
use tch::nn::VarStore;
use tch::{Device, Kind, TchError, Tensor};

/// PyTorch's keyword arguments of `Adam`, with its defaults.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct AdamOptions {
    /// The learning rate: roughly the size of a step in every weight, whatever its gradient.
    pub lr: f64,
    /// The decay rates of the moving averages of the gradient and of its square.
    pub betas: (f64, f64),
    /// Added to the denominator of a step, which could be 0.
    pub eps: f64,
    /// Weight decay.
    pub weight_decay: f64,
    /// Whether the decay applies directly to the parameters (AdamW), instead of being added to
    /// their gradients, where it would enter the moving averages (L2 penalty).
    pub decoupled_weight_decay: bool,
}

impl Default for AdamOptions {
    fn default() -> Self {
        AdamOptions {
            lr: 1e-3,
            betas: (0.9, 0.999),
            eps: 1e-8,
            weight_decay: 0.0,
            decoupled_weight_decay: false,
        }
    }
}

impl AdamOptions {
    /// The defaults of `torch.optim.AdamW`, which is Adam with another kind of weight decay.
    #[doc(alias = "AdamW")]
    pub fn adamw() -> Self {
        AdamOptions { weight_decay: 1e-2, decoupled_weight_decay: true, ..Default::default() }
    }

    fn check(&self) -> Result<()> {
        check_not_negative(&[
            ("lr", self.lr),
            ("eps", self.eps),
            ("weight_decay", self.weight_decay),
        ])?;
        for (what, beta) in [("betas.0", self.betas.0), ("betas.1", self.betas.1)] {
            if !(0.0..1.0).contains(&beta) {
                return Err(Error::Argument {
                    what: what.into(),
                    found: beta.to_string(),
                    expected: "at least 0 and below 1".into(),
                });
            }
        }
        Ok(())
    }
}

/// `torch.optim.Adam`, bit for bit: the operations of `_single_tensor_adam`, which Python runs on
/// the CPU, in their order.
///
/// tch's own optimizer rounds differently, and its state cannot be saved.
/// `torch.optim.AdamW` is the same with [`AdamOptions::adamw`].
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
#[derive(Debug)]
pub struct Adam {
    options: AdamOptions,
    states: ParameterStates<3>,
}

/// The class of the state, by the kind of weight decay: PyTorch has two classes.
const NAMES: [&str; 2] = ["Adam", "AdamW"];

impl Adam {
    /// An optimizer for the trainable variables of `vs`.
    ///
    /// # Errors
    /// [`Error::Argument`] for values that PyTorch refuses too, and for a store without parameters.
    pub fn new(vs: &VarStore, options: AdamOptions) -> Result<Self> {
        Self::from_named_parameters(trainable(vs)?, options)
    }

    /// An optimizer for these parameters; the list may be empty. The state uses their names.
    ///
    /// # Errors
    /// [`Error::Argument`] for values that PyTorch refuses too.
    pub fn from_named_parameters(
        parameters: Vec<(String, Tensor)>,
        options: AdamOptions,
    ) -> Result<Self> {
        options.check()?;
        let layout = StateLayout { names: ["step", "exp_avg", "exp_avg_sq"], fresh };
        Ok(Adam { options, states: ParameterStates::new(parameters, layout) })
    }

    fn name(&self) -> &'static str {
        NAMES[usize::from(self.options.decoupled_weight_decay)]
    }
}

impl Optimizer for Adam {
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

    /// For every parameter that has made a step, the tensors are the number of steps
    /// (`PARAMETER.step`, a scalar) and the moving averages of its gradient (`PARAMETER.exp_avg`)
    /// and of its square (`PARAMETER.exp_avg_sq`).
    fn state_dict(&self) -> Result<OptimizerState> {
        OptimizerState::new(self.name(), &self.options, self.states.named())
    }

    fn load_state_dict(&mut self, state: &OptimizerState) -> Result<()> {
        let options = state.options_for(self.name())?;
        self.states.load(&state.tensors)?;
        self.options = options;
        Ok(())
    }

    /// Twice the size of the parameters that have made a step, plus four bytes each for the
    /// counter.
    fn state_bytes(&self) -> usize {
        self.states.bytes()
    }
}

fn fresh(parameter: &Tensor) -> Result<[Tensor; 3], TchError> {
    // On the CPU, whatever the parameter's device: every step reads it.
    let step = Tensor::f_zeros([0; 0], (Kind::Float, Device::Cpu))?;
    Ok([step, parameter.f_zeros_like()?, parameter.f_zeros_like()?])
}

/// `_single_tensor_adam` for one parameter.
fn step(
    options: &AdamOptions,
    parameter: &mut Tensor,
    mut gradient: Tensor,
    state: &mut Option<[Tensor; 3]>,
) -> Result<()> {
    let tensor_error = || Error::tensor("step");
    let AdamOptions { lr, betas: (beta1, beta2), eps, weight_decay, .. } = *options;
    let [step, exp_avg, exp_avg_sq] = match state {
        Some(state) => state,
        none => none.insert(fresh(parameter).map_err(tensor_error())?),
    };
    let _ = step.f_add_scalar_(1.0).map_err(tensor_error())?;
    if weight_decay != 0.0 {
        if options.decoupled_weight_decay {
            let _ = parameter.f_mul_scalar_(1.0 - lr * weight_decay).map_err(tensor_error())?;
        } else {
            gradient = gradient.copy();
            add_scaled_(&mut gradient, parameter, weight_decay).map_err(Error::engine("step"))?;
        }
    }
    let _ = exp_avg.f_lerp_(&gradient, 1.0 - beta1).map_err(tensor_error())?;
    let _ = exp_avg_sq.f_mul_scalar_(beta2).map_err(tensor_error())?;
    addcmul_(exp_avg_sq, &gradient, &gradient, 1.0 - beta2).map_err(Error::engine("step"))?;

    let step = step.f_double_value(&[]).map_err(tensor_error())?;
    let bias_correction1 = 1.0 - beta1.powf(step);
    let bias_correction2 = 1.0 - beta2.powf(step);
    // Python's ** 0.5 may differ in the last bit of an f64, which an f32 does not have.
    let denominator = exp_avg_sq
        .f_sqrt()
        .and_then(|mut root| root.f_div_scalar_(bias_correction2.sqrt()))
        .and_then(|mut root| root.f_add_scalar_(eps))
        .map_err(tensor_error())?;
    addcdiv_(parameter, exp_avg, &denominator, -(lr / bias_correction1))
        .map_err(Error::engine("step"))
}

#[cfg(test)]
mod tests {
    use super::super::problem::Problem;
    use super::*;
    use serde_json::json;
    use std::collections::BTreeMap;
    use std::ops::Range;
    use tch::nn::{self, OptimizerConfig};

    fn variants() -> [AdamOptions; 4] {
        let plain = AdamOptions { lr: 0.1, ..Default::default() };
        [
            plain,
            AdamOptions { weight_decay: 0.1, ..plain },
            AdamOptions { lr: 0.1, weight_decay: 0.1, ..AdamOptions::adamw() },
            AdamOptions { betas: (0.5, 0.9), eps: 1e-3, ..plain },
        ]
    }

    fn run(problem: &Problem, optimizer: &mut Adam, steps: Range<i64>) {
        problem.run(steps, || {
            optimizer.step()?;
            optimizer.zero_grad()
        });
    }

    fn cpp_adam(options: AdamOptions, vs: &VarStore) -> nn::Optimizer {
        let AdamOptions { lr, betas: (beta1, beta2), eps, weight_decay: wd, .. } = options;
        if options.decoupled_weight_decay {
            nn::AdamW { beta1, beta2, wd, eps, amsgrad: false }.build(vs, lr).unwrap()
        } else {
            nn::Adam { beta1, beta2, wd, eps, amsgrad: false }.build(vs, lr).unwrap()
        }
    }

    /// Uses other operations for the same formulas. Only a comparison with Python can show that the
    /// bits are equal.
    #[test]
    fn steps_are_those_of_pytorchs_cpp_optimizer_but_for_rounding() {
        for options in variants() {
            let (ours, theirs) = (Problem::new(), Problem::new());
            run(&ours, &mut Adam::new(&ours.vs, options).unwrap(), 0..10);
            let mut reference = cpp_adam(options, &theirs.vs);
            theirs.run(0..10, || {
                reference.step();
                reference.zero_grad();
                Ok(())
            });
            for (ours, theirs) in ours.weights().iter().zip(theirs.weights()) {
                // Ten steps of 0.1 move a weight by about 1, of which f32 resolves 1e-7.
                assert!((ours - theirs).abs() < 5e-6, "{ours} against {theirs}: {options:?}");
            }
        }
    }

    #[test]
    fn a_run_goes_on_from_a_saved_state_as_if_it_had_not_been_interrupted() {
        for options in variants() {
            let (whole, interrupted) = (Problem::new(), Problem::new());
            run(&whole, &mut Adam::new(&whole.vs, options).unwrap(), 0..10);
            let mut before = Adam::new(&interrupted.vs, options).unwrap();
            run(&interrupted, &mut before, 0..4);
            let mut after = Adam::new(&interrupted.vs, options).unwrap();
            after.load_state_dict(&before.state_dict().unwrap()).unwrap();
            run(&interrupted, &mut after, 4..10);
            assert_eq!(whole.weights(), interrupted.weights(), "{options:?}");
        }
    }

    #[test]
    fn the_state_bears_pytorchs_names_and_counts_the_steps() {
        let problem = Problem::new();
        let mut optimizer = Adam::new(&problem.vs, AdamOptions::default()).unwrap();
        run(&problem, &mut optimizer, 0..3);
        let state = optimizer.state_dict().unwrap().tensors;
        let shapes: Vec<_> = state.iter().map(|(name, t)| (name.as_str(), t.size())).collect();
        for (parameter, shape) in [("weight", vec![3, 5]), ("bias", vec![3])] {
            let shape_of = |entry: &str| {
                let name = format!("{parameter}.{entry}");
                shapes.iter().find(|(found, _)| *found == name).map(|(_, shape)| shape.clone())
            };
            assert_eq!(shape_of("step"), Some(vec![]));
            assert_eq!(shape_of("exp_avg"), Some(shape.clone()));
            assert_eq!(shape_of("exp_avg_sq"), Some(shape));
        }
        assert_eq!(shapes.len(), 6);
        assert_eq!(state[0].1.double_value(&[]), 3.0);
    }

    #[test]
    fn a_state_that_does_not_fit_is_refused_and_changes_nothing() {
        let problem = Problem::new();
        let mut optimizer = Adam::new(&problem.vs, AdamOptions::default()).unwrap();
        run(&problem, &mut optimizer, 0..2);
        let good = optimizer.state_dict().unwrap();
        type Spoil = fn(&mut BTreeMap<String, Tensor>);
        let spoilt: [(Spoil, &str); 4] = [
            (
                |state| drop(state.insert("weight.momentum_buffer".into(), Tensor::from(0.0))),
                "the optimizer state is weight.momentum_buffer, but must be PARAMETER.step or \
                 PARAMETER.exp_avg or PARAMETER.exp_avg_sq for a parameter of this model",
            ),
            (
                |state| drop(state.insert("bias.exp_avg".into(), Tensor::from(0.0))),
                "bias.exp_avg is of shape [], but must be of shape [3]",
            ),
            (
                |state| drop(state.insert("bias.step".into(), Tensor::from_slice(&[1.0, 2.0]))),
                "bias.step is of shape [2], but must be of shape []",
            ),
            (
                |state| drop(state.remove("weight.exp_avg_sq")),
                "weight.exp_avg_sq is missing from the optimizer state, but must be present: \
                 weight.step, weight.exp_avg, weight.exp_avg_sq belong together",
            ),
        ];
        for (spoil, message) in spoilt {
            // Different values, so that a part that was copied is detected.
            let mut tensors =
                good.tensors.iter().map(|(name, tensor)| (name.clone(), tensor + 1)).collect();
            spoil(&mut tensors);
            let options = json!(AdamOptions { lr: 7.0, ..AdamOptions::default() });
            let tensors = tensors.into_iter().collect();
            let state = OptimizerState { optimizer: "Adam".into(), options, tensors };
            assert_eq!(optimizer.load_state_dict(&state).unwrap_err().to_string(), message);
            assert_eq!(optimizer.state_dict().unwrap(), good);
        }
    }

    #[test]
    fn a_parameter_without_a_gradient_stays_as_it_is_and_has_no_state() {
        let problem = Problem::new();
        let before = problem.weights();
        let mut optimizer = Adam::new(&problem.vs, variants()[2]).unwrap();
        optimizer.step().unwrap();
        assert_eq!(before, problem.weights());
        assert_eq!(optimizer.state_bytes(), 0);
    }

    #[test]
    fn the_state_occupies_twice_as_much_as_the_parameters_and_four_bytes_each() {
        let problem = Problem::new();
        let mut optimizer = Adam::new(&problem.vs, AdamOptions::default()).unwrap();
        run(&problem, &mut optimizer, 0..2);
        let parameters = (3 * 5 + 3) * size_of::<f32>();
        assert_eq!(optimizer.state_bytes(), 2 * parameters + 2 * 4);
    }

    #[test]
    fn what_pytorch_refuses_is_refused() {
        let vs = Problem::new().vs;
        let good = AdamOptions::default();
        for (options, message) in [
            (AdamOptions { lr: -1.0, ..good }, "lr is -1, but must be a number not below 0"),
            (AdamOptions { eps: f64::NAN, ..good }, "eps is NaN, but must be a number not below 0"),
            (
                AdamOptions { weight_decay: -0.1, ..good },
                "weight_decay is -0.1, but must be a number not below 0",
            ),
            (
                AdamOptions { betas: (1.0, 0.999), ..good },
                "betas.0 is 1, but must be at least 0 and below 1",
            ),
            (
                AdamOptions { betas: (0.9, f64::NAN), ..good },
                "betas.1 is NaN, but must be at least 0 and below 1",
            ),
        ] {
            assert_eq!(Adam::new(&vs, options).unwrap_err().to_string(), message);
        }
    }
}
