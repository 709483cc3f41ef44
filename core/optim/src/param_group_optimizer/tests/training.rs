//! Steps, and the state that they leave.

use super::*;
use crate::sparse_adam::tests::embedding;
use serde_json::json;

/// A weight of shape [3, 5] and a bias of shape [3].
fn layer() -> VarStore {
    let vs = VarStore::new(Device::Cpu);
    let _ = linear(vs.root(), 5, 3, LinearOptions::default());
    vs
}

#[test]
fn a_hook_that_fails_ends_the_step() {
    let mut optimizer = Sgd::new(&layer(), sgd()).unwrap();
    optimizer.register_step_pre_hook(|_| Err(Error::argument("the loss", "NaN", "finite")));
    let weight = optimizer.parameters().remove(0);
    weight.sum(Kind::Float).backward();
    let before = weight.copy();
    assert_eq!(optimizer.step().unwrap_err().to_string(), "the loss is NaN, but must be finite");
    assert_eq!(weight, before);
}

#[test]
fn momentum_occupies_as_much_as_the_parameters_and_adam_twice_that_and_four_bytes_each() {
    let vs = layer();
    let parameters = (3 * 5 + 3) * size_of::<f32>();
    let occupied = |mut optimizer: Box<dyn Optimizer>| {
        step(&vs, &mut optimizer);
        optimizer.state_bytes()
    };
    let by_sgd = |options| occupied(Box::new(Sgd::new(&vs, options).unwrap()));
    assert_eq!([SgdOptions::default(), sgd()].map(by_sgd), [0, parameters]);
    let adam = Adam::new(&vs, AdamOptions::default()).unwrap();
    assert_eq!(occupied(Box::new(adam)), 2 * parameters + 2 * 4);
}

#[test]
fn a_state_that_does_not_fit_is_refused_and_changes_nothing() {
    let vs = layer();
    let mut optimizer = Adam::new(&vs, AdamOptions::default()).unwrap();
    step(&vs, &mut optimizer);
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
fn a_sparse_momentum_of_another_shape_is_refused() {
    let mut optimizer = Sgd::new(&embedding(), sgd()).unwrap();
    optimizer.step().unwrap();
    let mut state = optimizer.state_dict().unwrap();
    optimizer.load_state_dict(&state).unwrap();
    let (_, buffer) = state.tensors.iter_mut().find(|(_, buffer)| buffer.is_sparse()).unwrap();
    *buffer = Tensor::ones([4, 3], (Kind::Float, Device::Cpu)).to_sparse_sparse_dim(1);
    let expected = "words.weight.momentum_buffer is of shape [4, 3], but must be of shape [5, 3]";
    assert_eq!(optimizer.load_state_dict(&state).unwrap_err().to_string(), expected);
}

#[test]
fn a_state_that_could_not_be_loaded_again_is_not_given() {
    let mut optimizer = Sgd::new(&layer(), SgdOptions::default()).unwrap();
    for lr in [f64::INFINITY, f64::NAN] {
        optimizer.set_lr(lr);
        let error = optimizer.state_dict().unwrap_err().to_string();
        assert!(error.starts_with("the options of SGD is {"), "{error}");
        assert!(error.contains(r#""lr":null"#), "{error}");
    }
}

#[test]
fn an_operation_that_fails_is_an_error_and_no_panic() {
    let mut vs = layer();
    let mut optimizer = Adam::new(&vs, AdamOptions::default()).unwrap();
    step(&vs, &mut optimizer);
    optimizer.zero_grad().unwrap();
    // The state stays in 32 bits, as in Python.
    vs.double();
    optimizer.parameters()[0].square().sum(Kind::Double).backward();
    let error = optimizer.step().unwrap_err().to_string();
    assert!(error.contains("dtype"), "{error}");
}
