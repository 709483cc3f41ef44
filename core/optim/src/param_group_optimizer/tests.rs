//! Which parameters are in which group, with which options, and what is refused.

mod foreach;
mod refused;
mod training;

use super::*;
use crate::{Adam, AdamOptions, Sgd, SgdOptions};
use tch::{Device, Kind};
use tch_parallel_nn::{LinearOptions, linear, named_parameters};

fn sgd() -> SgdOptions {
    SgdOptions { lr: 0.5, momentum: 0.9, ..Default::default() }
}

/// The backbone is in group 0 of the store, the head in group 2.
fn store() -> VarStore {
    let vs = VarStore::new(Device::Cpu);
    for (path, name) in [(vs.root(), "backbone"), (vs.root().set_group(2), "head")] {
        let _ = linear(path / name, 3, 2, LinearOptions::default());
    }
    vs
}

fn named(vs: &VarStore, name: &str) -> Vec<(String, Tensor)> {
    let mut parameters = named_parameters(vs);
    parameters.retain(|(found, _)| found.starts_with(name));
    parameters
}

/// A gradient of 1 in all elements, and a step.
fn step(vs: &VarStore, optimizer: &mut dyn Optimizer) {
    optimizer.zero_grad().unwrap();
    vs.trainable_variables().iter().map(|t| t.sum(Kind::Float)).sum::<Tensor>().backward();
    optimizer.step().unwrap();
}

#[test]
fn a_parameter_or_a_name_in_two_places_is_refused_and_named() {
    let vs = store();
    let mut optimizer = Sgd::from_named_parameters(named(&vs, "head"), sgd()).unwrap();
    let mut refused = |parameters| {
        let error = optimizer.add_param_group(ParamGroup::new(parameters, sgd())).unwrap_err();
        assert_eq!(optimizer.param_groups().len(), 1);
        error.to_string()
    };
    let expected = "is in parameter group 1 and before that already, but must be in one place";
    assert_eq!(refused(named(&vs, "head.bias")), format!("head.bias {expected}"));
    let twice = [(); 2].into_iter().flat_map(|()| named(&vs, "backbone.weight"));
    assert_eq!(refused(twice.collect()), format!("backbone.weight {expected}"));
    let other = vec![("head.bias".to_owned(), Tensor::zeros([2], (Kind::Float, Device::Cpu)))];
    let expected = "a name is head.bias for a second parameter, in parameter group 1, but must be that of one \
                    parameter";
    assert_eq!(refused(other), expected);
}

#[test]
fn groups_that_the_store_lacks_or_that_lack_options_are_refused() {
    let vs = store();
    let refused = |numbers: &[usize]| {
        let options = numbers.iter().map(|&number| (number, sgd()));
        Sgd::with_group_options(&vs, options).unwrap_err().to_string()
    };
    let one_of = "one of the variable store, each once: [0, 2]";
    assert_eq!(refused(&[0, 1, 2]), format!("a group number is 1, but must be {one_of}"));
    assert_eq!(refused(&[0, 2, 0]), format!("a group number is 0, but must be {one_of}"));
    let expected = "group 2 of the variable store (head.weight …) is without options, but must be in the list, like \
                    all its groups: [0, 2]";
    assert_eq!(refused(&[0]), expected);
    let error = Sgd::from_param_groups([]).unwrap_err().to_string();
    assert_eq!(error, "the list of parameter groups is empty, but must be one or more");
    let wrong = SgdOptions { momentum: -1.0, ..sgd() };
    let error = Sgd::with_group_options(&vs, [(0, sgd()), (2, wrong)]).unwrap_err().to_string();
    assert_eq!(error, "momentum is -1, but must be a number not below 0");
}

#[test]
fn the_state_says_which_parameter_is_in_which_group_with_which_options() {
    let vs = store();
    let nesterov = SgdOptions { weight_decay: 0.01, nesterov: true, ..sgd() };
    let options = [(0, sgd()), (2, nesterov)];
    let mut before = Sgd::with_group_options(&vs, options).unwrap();
    step(&vs, &mut before);
    before.param_groups_mut()[1].options.lr = 0.1 + 0.2;
    let state = before.state_dict().unwrap();
    assert_eq!(state.param_groups[0].param_names, ["backbone.weight", "backbone.bias"]);
    assert_eq!(state.param_groups[1].param_names, ["head.weight", "head.bias"]);
    assert_eq!(state.param_groups[1].options["lr"], 0.1 + 0.2);
    let mut after = Sgd::new(&vs, SgdOptions::default()).unwrap();
    after.load_state_dict(&state).unwrap();
    assert_eq!(after.param_groups()[1].options, SgdOptions { lr: 0.1 + 0.2, ..nesterov });
    assert_eq!(after.state_dict().unwrap(), state);
}

#[test]
fn the_state_of_other_groups_is_refused_and_the_parameter_named() {
    let vs = store();
    let state = Sgd::new(&vs, sgd()).unwrap().state_dict().unwrap();
    let groups = |names: [&[&str]; 2]| {
        let parameters = |names: &[&str]| names.iter().flat_map(|name| named(&vs, name)).collect();
        Sgd::from_param_groups(names.map(|it| ParamGroup::new(parameters(it), sgd()))).unwrap()
    };
    let refused = |mut optimizer: Sgd| {
        let before = optimizer.state_dict().unwrap();
        let error = optimizer.load_state_dict(&state).unwrap_err().to_string();
        assert_eq!(optimizer.state_dict().unwrap(), before);
        error
    };
    let expected = "the optimizer state is that of 2 parameter groups, but must be that of 1 parameter group, which \
                    this optimizer has";
    assert_eq!(refused(Sgd::from_named_parameters(named(&vs, "head"), sgd()).unwrap()), expected);
    let expected = "parameter group 0 of the optimizer state is one with backbone.bias, but must be one without, as \
                    this optimizer's is";
    assert_eq!(refused(groups([&["backbone.weight"], &["backbone.bias", "head"]])), expected);
    let expected = "parameter group 0 of the optimizer state is one without head.bias, but must be one with it, as \
                    this optimizer's is";
    assert_eq!(refused(groups([&["backbone", "head.bias"], &["head.weight"]])), expected);
    // The order within a group is of no importance.
    let mut turned = groups([&["backbone.bias", "backbone.weight"], &["head"]]);
    turned.load_state_dict(&state).unwrap();
}
