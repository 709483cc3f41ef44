//! Adam and AdamW: `torch.optim.Adam`.

use super::rule_parts::*;

options! {
    /// PyTorch's keyword arguments of `Adam`, with its defaults.
    #[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
    pub struct AdamOptions {
        /// The learning rate: roughly the size of a step in every weight, whatever its gradient.
        pub lr: f64 = 1e-3,
        /// The decay rates of the moving averages of the gradient and of its square.
        pub betas: (f64, f64) = (0.9, 0.999),
        /// Added to the denominator of a step, which could be 0.
        pub eps: f64 = 1e-8,
        /// Weight decay.
        pub weight_decay: f64 = 0.0,
        /// Whether the decay applies directly to the parameters (AdamW), instead of being added to
        /// their gradients, where it would enter the moving averages (L2 penalty).
        pub decoupled_weight_decay: bool = false,
        /// Whether to divide by the largest of the moving averages of the square so far, instead of
        /// the last (Reddi et al., "On the Convergence of Adam and Beyond", 2018).
        pub amsgrad: bool = false,
        /// Whether to maximize the objective instead of minimizing it.
        pub maximize: bool = false,
        /// Whether to update parameters in lists; see [`GroupOptions::foreach`].
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub foreach: Option<bool> = None,
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
pub type Adam = ParamGroupOptimizer<AdamOptions>;

group_options!(AdamOptions { lr, momentum: betas.0, maximize, foreach });

impl UpdateRule for AdamOptions {
    /// PyTorch has two classes, by the kind of weight decay.
    fn name(&self) -> &'static str {
        if self.decoupled_weight_decay { "AdamW" } else { "Adam" }
    }

    fn check(&self) -> Result<()> {
        check_not_negative(&named!(self.lr, self.eps, self.weight_decay))?;
        check_betas(self.betas)
    }

    /// The number of steps, and the moving averages of the gradient and of its square.
    fn state_layout(&self) -> Vec<(&'static str, StateShape)> {
        let mut layout = vec![("step", Scalar), ("exp_avg", Parameter), ("exp_avg_sq", Parameter)];
        if self.amsgrad {
            layout.push(("max_exp_avg_sq", Parameter));
        }
        layout
    }

    /// `_single_tensor_adam` and `_multi_tensor_adam`
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

#[cfg(test)]
mod tests {
    use super::super::Optimizer;
    use super::super::problem::Problem;
    use super::*;
    use serde_json::json;
    use std::collections::BTreeMap;
    use std::ops::Range;
    use tch::Tensor;
    use tch::nn::{self, OptimizerConfig, VarStore};

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
    fn the_state_has_pytorchs_names_and_counts_the_steps() {
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
            let mut state = optimizer.state_dict().unwrap();
            state.param_groups[0].options = json!(AdamOptions { lr: 7.0, ..Default::default() });
            state.tensors = tensors.into_iter().collect();
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
    fn an_operation_that_fails_is_an_error_and_no_panic() {
        let mut problem = Problem::new();
        let mut optimizer = Adam::new(&problem.vs, AdamOptions::default()).unwrap();
        run(&problem, &mut optimizer, 0..1);
        // The state stays in 32 bits, as in Python.
        problem.vs.double();
        let parameter = &optimizer.parameters()[0];
        parameter.square().sum(tch::Kind::Double).backward();
        let error = optimizer.step().unwrap_err().to_string();
        assert!(error.contains("dtype"), "{error}");
    }
}
