//! Stochastic gradient descent: `torch.optim.SGD`.

use crate::parameters::named_parameters;
use crate::{Error, Result};
use c10d_sys::tensor::{add_scaled_, clear_grad};
use tch::nn::VarStore;
use tch::{Tensor, no_grad};

/// PyTorch's keyword arguments of `SGD`, with its defaults.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SgdOptions {
    /// How far to go along the gradient.
    pub lr: f64,
    /// How much of the last step is kept in the next; 0 keeps none and costs no memory.
    pub momentum: f64,
    /// How much of the gradient is left out of the momentum.
    pub dampening: f64,
    /// How strongly parameters are drawn to zero (an L2 penalty, added to the gradient).
    pub weight_decay: f64,
    /// Whether to look ahead along the momentum; needs momentum and no dampening.
    pub nesterov: bool,
}

impl Default for SgdOptions {
    fn default() -> Self {
        SgdOptions { lr: 1e-3, momentum: 0.0, dampening: 0.0, weight_decay: 0.0, nesterov: false }
    }
}

/// `torch.optim.SGD`, bit for bit: the operations of its `_single_tensor_sgd`, in their order.
///
/// tch's own optimizer computes the same but keeps its momentum where it cannot be saved.
#[derive(Debug)]
pub struct Sgd {
    options: SgdOptions,
    parameters: Vec<Parameter>,
}

#[derive(Debug)]
struct Parameter {
    name: String,
    tensor: Tensor,
    /// None before the first step, which starts it with the gradient itself.
    momentum_buffer: Option<Tensor>,
}

impl Sgd {
    /// An optimizer of the trainable variables of `vs`.
    ///
    /// # Errors
    /// [`Error::Argument`] for values that PyTorch refuses as well.
    pub fn new(vs: &VarStore, options: SgdOptions) -> Result<Self> {
        options.check()?;
        let parameters: Vec<_> = named_parameters(vs)
            .into_iter()
            .map(|(name, tensor)| Parameter { name, tensor, momentum_buffer: None })
            .collect();
        if parameters.is_empty() {
            return Err(Error::Argument {
                what: "vs".into(),
                found: "a variable store without a trainable variable".into(),
                expected: "that of a model; build the model before its optimizer".into(),
            });
        }
        Ok(Sgd { options, parameters })
    }

    /// Forgets all gradients, so that the next backward pass begins anew.
    ///
    /// They are dropped rather than filled with zeros (PyTorch's `set_to_none=True`): a parameter
    /// that gets none is left alone, and the gradients may be views into buckets.
    pub fn zero_grad(&mut self) -> Result<()> {
        for parameter in &mut self.parameters {
            clear_grad(&mut parameter.tensor).map_err(failed("zero_grad"))?;
        }
        Ok(())
    }

    /// One step along the gradients. A parameter without a gradient stays as it is.
    pub fn step(&mut self) -> Result<()> {
        no_grad(|| self.parameters.iter_mut().try_for_each(|p| p.step(&self.options)))
    }

    /// The learning rate.
    pub fn lr(&self) -> f64 {
        self.options.lr
    }

    /// Sets the learning rate of the steps to come.
    pub fn set_lr(&mut self, lr: f64) {
        self.options.lr = lr;
    }

    /// What the next step depends on beside parameters and gradients: the momentum buffers, named
    /// `NAME.momentum_buffer`. Empty without momentum and before the first step.
    pub fn state_dict(&self) -> Vec<(String, Tensor)> {
        self.parameters
            .iter()
            .filter_map(|parameter| {
                let buffer = parameter.momentum_buffer.as_ref()?;
                Some((format!("{}.momentum_buffer", parameter.name), buffer.copy()))
            })
            .collect()
    }

    /// Takes over a state that [`state_dict`](Self::state_dict) gave.
    ///
    /// # Errors
    /// [`Error::Argument`] for a name that no parameter has, or a shape that is not the parameter's.
    pub fn load_state_dict(&mut self, state: &[(String, Tensor)]) -> Result<()> {
        let mut buffers = Vec::new();
        for (name, buffer) in state {
            let position = name
                .strip_suffix(".momentum_buffer")
                .and_then(|name| self.parameters.iter().position(|p| p.name == name))
                .ok_or_else(|| Error::Argument {
                    what: "optimizer state".into(),
                    found: name.clone(),
                    expected: "PARAMETER.momentum_buffer for a parameter of this model".into(),
                })?;
            let parameter = &self.parameters[position].tensor;
            if buffer.size() != parameter.size() {
                return Err(Error::Argument {
                    what: name.clone(),
                    found: format!("of shape {:?}", buffer.size()),
                    expected: format!("of the parameter's shape, {:?}", parameter.size()),
                });
            }
            buffers.push((position, buffer.to_device(parameter.device()).copy()));
        }
        for parameter in &mut self.parameters {
            parameter.momentum_buffer = None;
        }
        for (position, buffer) in buffers {
            self.parameters[position].momentum_buffer = Some(buffer);
        }
        Ok(())
    }
}

impl Parameter {
    fn step(&mut self, options: &SgdOptions) -> Result<()> {
        let mut gradient = self.tensor.grad();
        if !gradient.defined() {
            return Ok(());
        }
        if options.weight_decay != 0.0 {
            gradient = gradient.copy();
            add_scaled_(&mut gradient, &self.tensor, options.weight_decay)
                .map_err(failed("step"))?;
        }
        if options.momentum != 0.0 {
            let buffer = match &mut self.momentum_buffer {
                Some(buffer) => {
                    let _ =
                        buffer.f_mul_scalar_(options.momentum).map_err(Error::tensor("step"))?;
                    add_scaled_(buffer, &gradient, 1.0 - options.dampening)
                        .map_err(failed("step"))?;
                    buffer
                }
                none => none.insert(gradient.copy()),
            };
            gradient = if options.nesterov {
                let mut ahead = gradient.copy();
                add_scaled_(&mut ahead, buffer, options.momentum).map_err(failed("step"))?;
                ahead
            } else {
                buffer.shallow_clone()
            };
        }
        add_scaled_(&mut self.tensor, &gradient, -options.lr).map_err(failed("step"))
    }
}

impl SgdOptions {
    fn check(&self) -> Result<()> {
        let refuse = |what: &str, found: f64, expected: &str| {
            Err(Error::Argument {
                what: what.into(),
                found: found.to_string(),
                expected: expected.into(),
            })
        };
        for (what, value) in
            [("lr", self.lr), ("momentum", self.momentum), ("weight_decay", self.weight_decay)]
        {
            if value.is_nan() || value < 0.0 {
                return refuse(what, value, "a number not below 0");
            }
        }
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

fn failed(operation: &'static str) -> impl FnOnce(c10d_sys::Error) -> Error {
    move |error| Error::Tensor { operation, message: error.message().to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tch::nn::{self, Module, OptimizerConfig};
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

    struct Problem {
        vs: VarStore,
        layer: nn::Linear,
    }

    impl Problem {
        fn new() -> Problem {
            tch::manual_seed(7);
            let vs = VarStore::new(Device::Cpu);
            let layer = nn::linear(vs.root(), 5, 3, Default::default());
            Problem { vs, layer }
        }

        fn backward(&self, step: i64) {
            let xs = (Tensor::arange(20, (Kind::Float, Device::Cpu)) + step).sin().view([4, 5]);
            self.layer.forward(&xs).square().mean(Kind::Float).backward();
        }

        fn run(&self, optimizer: &mut Sgd, steps: std::ops::Range<i64>) {
            for step in steps {
                optimizer.zero_grad().unwrap();
                self.backward(step);
                optimizer.step().unwrap();
            }
        }

        fn weights(&self) -> Vec<f32> {
            Vec::try_from(self.layer.ws.view([-1])).unwrap()
        }
    }

    #[test]
    fn steps_are_those_of_pytorchs_cpp_optimizer_to_the_last_bit() {
        for options in VARIANTS {
            let (ours, theirs) = (Problem::new(), Problem::new());
            ours.run(&mut Sgd::new(&ours.vs, options).unwrap(), 0..10);
            let SgdOptions { lr, momentum, dampening, weight_decay, nesterov } = options;
            let mut reference =
                nn::sgd(momentum, dampening, weight_decay, nesterov).build(&theirs.vs, lr).unwrap();
            for step in 0..10 {
                reference.zero_grad();
                theirs.backward(step);
                reference.step();
            }
            assert_eq!(ours.weights(), theirs.weights(), "{options:?}");
        }
    }

    #[test]
    fn a_run_goes_on_from_a_saved_state_as_if_it_had_not_been_interrupted() {
        for options in VARIANTS {
            let (whole, interrupted) = (Problem::new(), Problem::new());
            whole.run(&mut Sgd::new(&whole.vs, options).unwrap(), 0..10);
            let mut before = Sgd::new(&interrupted.vs, options).unwrap();
            interrupted.run(&mut before, 0..4);
            let mut after = Sgd::new(&interrupted.vs, options).unwrap();
            after.load_state_dict(&before.state_dict()).unwrap();
            interrupted.run(&mut after, 4..10);
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
            ("weight.momentum_buffer", "of the parameter's shape, [3, 5]"),
        ] {
            let state = [(name.to_owned(), zeros.shallow_clone())];
            let error = optimizer.load_state_dict(&state).unwrap_err().to_string();
            assert!(error.ends_with(expected), "{error}");
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
