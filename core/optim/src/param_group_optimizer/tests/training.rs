//! Steps, and the state that they leave.

use super::*;
use serde_json::json;
use std::ops::Range;
use tch::nn::{self, Module, OptimizerConfig};

/// A small layer, always the same: a weight of shape [3, 5] and a bias of shape [3].
struct Problem {
    vs: VarStore,
    layer: nn::Linear,
}

impl Problem {
    fn new() -> Problem {
        let vs = VarStore::new(Device::Cpu);
        // Not random: tests run in parallel and share one global generator.
        let variable = |name, values: Tensor| vs.root().var_copy(name, &values);
        let ws = variable("weight", waves(0, 15).view([3, 5]));
        let bs = Some(variable("bias", waves(15, 3)));
        Problem { vs, layer: nn::Linear { ws, bs } }
    }

    /// Computes the gradients for each step; `step` must apply and clear them.
    fn run(&self, steps: Range<i64>, mut step: impl FnMut()) {
        for number in steps {
            let xs = waves(number, 20).view([4, 5]);
            self.layer.forward(&xs).square().mean(Kind::Float).backward();
            step();
        }
    }

    fn train(&self, optimizer: &mut dyn Optimizer, steps: Range<i64>) {
        self.run(steps, || {
            optimizer.step().unwrap();
            optimizer.zero_grad().unwrap();
        });
    }

    fn weights(&self) -> Vec<f32> {
        Vec::try_from(self.layer.ws.view([-1])).unwrap()
    }
}

fn waves(from: i64, count: i64) -> Tensor {
    Tensor::arange_start(from, from + count, (Kind::Float, Device::Cpu)).sin()
}

fn sgd_variants() -> [SgdOptions; 5] {
    let plain = SgdOptions { lr: 0.1, ..Default::default() };
    [
        plain,
        SgdOptions { weight_decay: 0.01, ..plain },
        SgdOptions { momentum: 0.9, ..plain },
        SgdOptions { momentum: 0.9, dampening: 0.3, weight_decay: 0.01, ..plain },
        SgdOptions { momentum: 0.9, weight_decay: 0.01, nesterov: true, ..plain },
    ]
}

fn adam_variants() -> [AdamOptions; 4] {
    let plain = AdamOptions { lr: 0.1, ..Default::default() };
    [
        plain,
        AdamOptions { weight_decay: 0.1, ..plain },
        AdamOptions { lr: 0.1, weight_decay: 0.1, ..AdamOptions::adamw() },
        AdamOptions { betas: (0.5, 0.9), eps: 1e-3, ..plain },
    ]
}

/// The weights after ten steps of ours, and of tch's optimizer, which is PyTorch's of C++.
fn ours_and_theirs<R: UpdateRule>(options: R, reference: impl OptimizerConfig) -> [Vec<f32>; 2] {
    let (ours, theirs) = (Problem::new(), Problem::new());
    let lr = options.lr();
    ours.train(&mut ParamGroupOptimizer::new(&ours.vs, options).unwrap(), 0..10);
    let mut reference = reference.build(&theirs.vs, lr).unwrap();
    theirs.run(0..10, || {
        reference.step();
        reference.zero_grad();
    });
    [ours.weights(), theirs.weights()]
}

#[test]
fn steps_of_sgd_are_those_of_pytorchs_cpp_optimizer_to_the_last_bit() {
    for options in sgd_variants() {
        let SgdOptions { momentum, dampening, weight_decay, nesterov, .. } = options;
        let reference = nn::sgd(momentum, dampening, weight_decay, nesterov);
        let [ours, theirs] = ours_and_theirs(options, reference);
        assert_eq!(ours, theirs, "{options:?}");
    }
}

/// Uses other operations for the same formulas. Only a comparison with Python can show that the bits are equal.
#[test]
fn steps_of_adam_are_those_of_pytorchs_cpp_optimizer_but_for_rounding() {
    for options in adam_variants() {
        let AdamOptions { betas: (beta1, beta2), eps, weight_decay: wd, .. } = options;
        let [ours, theirs] = if options.decoupled_weight_decay {
            ours_and_theirs(options, nn::AdamW { beta1, beta2, wd, eps, amsgrad: false })
        } else {
            ours_and_theirs(options, nn::Adam { beta1, beta2, wd, eps, amsgrad: false })
        };
        for (ours, theirs) in ours.iter().zip(theirs) {
            // Ten steps of 0.1 move a weight by about 1, of which f32 resolves 1e-7.
            assert!((ours - theirs).abs() < 5e-6, "{ours} against {theirs}: {options:?}");
        }
    }
}

#[test]
fn a_run_goes_on_from_a_saved_state_as_if_it_had_not_been_interrupted() {
    fn expect_the_same<R: UpdateRule>(options: R) {
        let optimizer =
            |problem: &Problem| ParamGroupOptimizer::new(&problem.vs, options.clone()).unwrap();
        let (whole, interrupted) = (Problem::new(), Problem::new());
        whole.train(&mut optimizer(&whole), 0..10);
        let mut before = optimizer(&interrupted);
        interrupted.train(&mut before, 0..4);
        let mut after = optimizer(&interrupted);
        after.load_state_dict(&before.state_dict().unwrap()).unwrap();
        interrupted.train(&mut after, 4..10);
        assert_eq!(whole.weights(), interrupted.weights(), "{options:?}");
    }
    sgd_variants().into_iter().for_each(expect_the_same);
    adam_variants().into_iter().for_each(expect_the_same);
}

#[test]
fn a_parameter_without_a_gradient_stays_as_it_is_and_has_no_state() {
    let problem = Problem::new();
    let before = problem.weights();
    let sgd = Sgd::new(&problem.vs, sgd_variants()[4]).unwrap();
    let adam = Adam::new(&problem.vs, adam_variants()[2]).unwrap();
    for mut optimizer in [Box::new(sgd) as Box<dyn Optimizer>, Box::new(adam)] {
        optimizer.step().unwrap();
        assert_eq!(before, problem.weights());
        assert_eq!(optimizer.state_bytes(), 0);
    }
}

#[test]
fn momentum_occupies_as_much_as_the_parameters_and_adam_twice_that_and_four_bytes_each() {
    let problem = Problem::new();
    let parameters = (3 * 5 + 3) * size_of::<f32>();
    let occupied = |mut optimizer: Box<dyn Optimizer>| {
        problem.train(&mut optimizer, 0..2);
        optimizer.state_bytes()
    };
    let sgd = |variant| Box::new(Sgd::new(&problem.vs, sgd_variants()[variant]).unwrap());
    assert_eq!([occupied(sgd(0)), occupied(sgd(2))], [0, parameters]);
    let adam = Adam::new(&problem.vs, AdamOptions::default()).unwrap();
    assert_eq!(occupied(Box::new(adam)), 2 * parameters + 2 * 4);
}

#[test]
fn the_state_has_pytorchs_names_and_counts_the_steps() {
    let problem = Problem::new();
    let mut optimizer = Adam::new(&problem.vs, AdamOptions::default()).unwrap();
    problem.train(&mut optimizer, 0..3);
    let state = optimizer.state_dict().unwrap().tensors;
    let shapes: Vec<_> = state.iter().map(|(name, t)| (name.as_str(), t.size())).collect();
    let expected = [
        ("weight.step", vec![]),
        ("weight.exp_avg", vec![3, 5]),
        ("weight.exp_avg_sq", vec![3, 5]),
        ("bias.step", vec![]),
        ("bias.exp_avg", vec![3]),
        ("bias.exp_avg_sq", vec![3]),
    ];
    assert_eq!(shapes, expected);
    assert_eq!(state[0].1.double_value(&[]), 3.0);
}

#[test]
fn a_state_that_does_not_fit_is_refused_and_changes_nothing() {
    let problem = Problem::new();
    let mut optimizer = Adam::new(&problem.vs, AdamOptions::default()).unwrap();
    problem.train(&mut optimizer, 0..2);
    let good = optimizer.state_dict().unwrap();
    let unknown =
        "PARAMETER.step or PARAMETER.exp_avg or PARAMETER.exp_avg_sq for a parameter of this model";
    let together = "present: weight.step, weight.exp_avg, weight.exp_avg_sq belong together";
    let (buffer, squares) = ("weight.momentum_buffer", "weight.exp_avg_sq");
    let number = || Some(Tensor::from(0.0));
    let pair = Some(Tensor::from_slice(&[1.0, 2.0]));
    for (name, entry, found, expected) in [
        (buffer, number(), "the optimizer state is weight.momentum_buffer", unknown),
        ("other.exp_avg", number(), "the optimizer state is other.exp_avg", unknown),
        ("bias.exp_avg", number(), "bias.exp_avg is of shape []", "of shape [3]"),
        ("bias.step", pair, "bias.step is of shape [2]", "of shape []"),
        (squares, None, "weight.exp_avg_sq is missing from the optimizer state", together),
    ] {
        // Different values, so that a part that was copied is detected.
        let others = good.tensors.iter().filter(|(found, _)| found != name);
        let mut tensors: Vec<_> = others.map(|(name, tensor)| (name.clone(), tensor + 1)).collect();
        tensors.extend(entry.map(|entry| (name.to_owned(), entry)));
        let mut state = OptimizerState { tensors, ..optimizer.state_dict().unwrap() };
        state.param_groups[0].options = json!(AdamOptions { lr: 7.0, ..Default::default() });
        let error = optimizer.load_state_dict(&state).unwrap_err().to_string();
        assert_eq!(error, format!("{found}, but must be {expected}"));
        assert_eq!(optimizer.state_dict().unwrap(), good);
    }
}

#[test]
fn a_state_of_another_optimizer_is_refused() {
    let vs = Problem::new().vs;
    let adam = Adam::new(&vs, AdamOptions::default()).unwrap();
    let mut optimizer = Sgd::new(&vs, SgdOptions::default()).unwrap();
    let error = optimizer.load_state_dict(&adam.state_dict().unwrap()).unwrap_err();
    let expected =
        "the optimizer state is that of Adam, but must be that of SGD, which is this optimizer";
    assert_eq!(error.to_string(), expected);
}

#[test]
fn a_sparse_momentum_of_another_shape_is_refused() {
    let vs = VarStore::new(Device::Cpu);
    let table = vs.root().ones("table", &[5, 2]);
    let mut optimizer = Sgd::new(&vs, sgd_variants()[2]).unwrap();
    let words = Tensor::from_slice(&[1i64, 3]);
    Tensor::embedding(&table, &words, -1, false, true).sum(Kind::Float).backward();
    optimizer.step().unwrap();
    let mut state = optimizer.state_dict().unwrap();
    assert!(state.tensors[0].1.is_sparse());
    optimizer.load_state_dict(&state).unwrap();
    let smaller = Tensor::ones([4, 2], (Kind::Float, Device::Cpu));
    state.tensors[0].1 = smaller.to_sparse_sparse_dim(1);
    let expected = "table.momentum_buffer is of shape [4, 2], but must be of shape [5, 2]";
    assert_eq!(optimizer.load_state_dict(&state).unwrap_err().to_string(), expected);
}

#[test]
fn the_options_go_with_the_state() {
    let vs = Problem::new().vs;
    let [plain, .., nesterov] = sgd_variants();
    let mut before = Sgd::new(&vs, nesterov).unwrap();
    before.set_lr(0.1 + 0.2);
    let mut after = Sgd::new(&vs, plain).unwrap();
    after.load_state_dict(&before.state_dict().unwrap()).unwrap();
    assert_eq!(after.param_groups()[0].options, SgdOptions { lr: 0.1 + 0.2, ..nesterov });
}

#[test]
fn a_state_that_could_not_be_loaded_again_is_not_given() {
    let mut optimizer = Sgd::new(&Problem::new().vs, SgdOptions::default()).unwrap();
    for lr in [f64::INFINITY, f64::NAN] {
        optimizer.set_lr(lr);
        let error = optimizer.state_dict().unwrap_err().to_string();
        assert!(error.starts_with("the options of SGD is {"), "{error}");
        assert!(error.contains(r#""lr":null"#), "{error}");
    }
}

#[test]
fn an_operation_that_fails_is_an_error_and_no_panic() {
    let mut problem = Problem::new();
    let mut optimizer = Adam::new(&problem.vs, AdamOptions::default()).unwrap();
    problem.train(&mut optimizer, 0..1);
    // The state stays in 32 bits, as in Python.
    problem.vs.double();
    optimizer.parameters()[0].square().sum(Kind::Double).backward();
    let error = optimizer.step().unwrap_err().to_string();
    assert!(error.contains("dtype"), "{error}");
}
