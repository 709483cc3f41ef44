//! Which parameters are in which group, with which options, and what is refused.

mod foreach;
mod refused;
mod training;

use super::*;
use crate::lr_scheduler::{LrScheduler, Scheduler, StepLr};
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

fn names<R: UpdateRule>(optimizer: &ParamGroupOptimizer<R>) -> Vec<Vec<&str>> {
    optimizer.param_groups().iter().map(ParamGroup::names).collect()
}

/// A gradient of 1 in all elements, and a step.
fn step(vs: &VarStore, optimizer: &mut dyn Optimizer) {
    optimizer.zero_grad().unwrap();
    vs.trainable_variables().iter().map(|t| t.sum(Kind::Float)).sum::<Tensor>().backward();
    optimizer.step().unwrap();
}

fn value(vs: &VarStore, name: &str) -> f64 {
    vs.variables()[name].flatten(0, -1).double_value(&[0])
}

/// How far one step moves the first element of each weight.
fn moves(vs: &VarStore, optimizer: &mut dyn Optimizer) -> [f64; 2] {
    let weights = || ["backbone.weight", "head.weight"].map(|name| value(vs, name));
    let before = weights();
    step(vs, optimizer);
    let after = weights();
    [before[0] - after[0], before[1] - after[1]].map(|moved| (moved * 1000.0).round() / 1000.0)
}

#[test]
fn the_groups_of_a_store_become_the_optimizers() {
    let vs = store();
    let mut optimizer = Sgd::new(&vs, sgd()).unwrap();
    let expected = [["backbone.weight", "backbone.bias"], ["head.weight", "head.bias"]];
    assert_eq!(names(&optimizer), expected);
    assert_eq!(moves(&vs, &mut optimizer), [0.5, 0.5]);

    let ungrouped = VarStore::new(Device::Cpu);
    let _ = linear(ungrouped.root(), 3, 2, LinearOptions::default());
    assert_eq!(names(&Sgd::new(&ungrouped, sgd()).unwrap()), [["weight", "bias"]]);
}

#[test]
fn each_group_moves_by_its_own_options() {
    let vs = store();
    let slow = SgdOptions { lr: 0.125, momentum: 0.0, ..sgd() };
    let mut optimizer = Sgd::with_group_options(&vs, [(2, slow), (0, sgd())]).unwrap();
    assert_eq!(names(&optimizer)[0], ["head.weight", "head.bias"]);
    assert_eq!(moves(&vs, &mut optimizer), [0.5, 0.125]);
    assert_eq!(moves(&vs, &mut optimizer), [0.95, 0.125]);
    optimizer.param_groups_mut()[0].options.lr = 0.25;
    assert_eq!(moves(&vs, &mut optimizer), [1.355, 0.25]);
}

#[test]
fn set_lr_is_for_all_groups_and_lr_is_that_of_the_first() {
    let vs = store();
    let options = [(0, sgd()), (2, SgdOptions { lr: 0.25, ..sgd() })];
    let mut optimizer: Box<dyn Optimizer> =
        Box::new(Sgd::with_group_options(&vs, options).unwrap());
    let rates = |optimizer: &dyn Optimizer| -> Vec<f64> {
        optimizer.param_groups().iter().map(|group| group.options.lr()).collect()
    };
    assert_eq!((optimizer.lr(), rates(&*optimizer)), (0.5, vec![0.5, 0.25]));
    optimizer.set_lr(1.0);
    assert_eq!(rates(&*optimizer), [1.0, 1.0]);
    let momenta: Vec<_> =
        optimizer.param_groups().iter().map(|group| group.options.momentum()).collect();
    assert_eq!(momenta, [Some(0.9); 2]);
    optimizer.param_groups_mut()[1].options.set_momentum(0.5);
    step(&vs, &mut optimizer);
    assert_eq!(moves(&vs, &mut optimizer), [1.9, 1.5]);
}

#[test]
fn a_schedule_multiplies_the_rate_of_each_group() {
    let vs = store();
    let options = [(0, sgd()), (2, SgdOptions { lr: 0.25, ..sgd() })];
    let mut optimizer = Sgd::with_group_options(&vs, options).unwrap();
    let schedule = StepLr { step_size: 1, gamma: 0.5 };
    let mut scheduler = LrScheduler::new(&mut optimizer, schedule).unwrap();
    scheduler.step(&mut optimizer).unwrap();
    assert_eq!(scheduler.last_lr(), [0.25, 0.125]);
    assert_eq!(optimizer.param_groups()[1].options.lr, 0.125);
}

#[test]
fn a_frozen_group_does_not_move() {
    let vs = store();
    let decay = AdamOptions::adamw();
    let frozen = [(0, AdamOptions { lr: 0.0, ..decay }), (2, decay)];
    let mut optimizer = Adam::with_group_options(&vs, frozen).unwrap();
    assert_eq!(moves(&vs, &mut optimizer)[0], 0.0);

    let mut optimizer = Adam::new(&vs, decay).unwrap();
    optimizer.zero_grad().unwrap();
    for (_, tensor) in named(&vs, "backbone") {
        let _ = tensor.set_requires_grad(false);
    }
    let before = value(&vs, "backbone.weight");
    let head: Vec<_> = named(&vs, "head").into_iter().map(|(_, t)| t.sum(Kind::Float)).collect();
    head.into_iter().sum::<Tensor>().backward();
    optimizer.step().unwrap();
    assert_eq!(value(&vs, "backbone.weight"), before);
    let state = optimizer.state_dict().unwrap();
    assert!(state.tensors.iter().all(|(name, _)| name.starts_with("head.")));
}

#[test]
fn a_group_can_be_added_after_steps_of_the_others() {
    let vs = store();
    let mut optimizer = Sgd::from_named_parameters(named(&vs, "head"), sgd()).unwrap();
    assert_eq!(moves(&vs, &mut optimizer), [0.0, 0.5]);
    let slow = SgdOptions { lr: 0.25, ..sgd() };
    optimizer.add_param_group(ParamGroup::new(named(&vs, "backbone"), slow)).unwrap();
    vs.trainable_variables().iter_mut().for_each(Tensor::zero_grad);
    assert_eq!(moves(&vs, &mut optimizer), [0.25, 0.95]);
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
    let expected =
        "head.bias is in parameter group 1 and before that already, but must be in one place";
    assert_eq!(refused(named(&vs, "head.bias")), expected);
    let twice = [(); 2].into_iter().flat_map(|()| named(&vs, "backbone.weight"));
    let expected =
        "backbone.weight is in parameter group 1 and before that already, but must be in one place";
    assert_eq!(refused(twice.collect()), expected);
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
    let options = [(0, sgd()), (2, SgdOptions { lr: 0.25, ..sgd() })];
    let mut before = Sgd::with_group_options(&vs, options).unwrap();
    step(&vs, &mut before);
    let state = before.state_dict().unwrap();
    assert_eq!(state.param_groups[1].param_names, ["head.weight", "head.bias"]);
    assert_eq!(state.param_groups[1].options["lr"], 0.25);

    let mut after = Sgd::new(&vs, SgdOptions::default()).unwrap();
    after.load_state_dict(&state).unwrap();
    assert_eq!(after.param_groups()[1].options, SgdOptions { lr: 0.25, ..sgd() });
    assert_eq!(after.state_dict().unwrap(), state);
}

#[test]
fn the_state_of_other_groups_is_refused_and_the_parameter_named() {
    let vs = store();
    let state = Sgd::new(&vs, sgd()).unwrap().state_dict().unwrap();
    let groups = |first: &[&str], second: &[&str]| {
        let group = |names: &[&str]| {
            ParamGroup::new(names.iter().flat_map(|name| named(&vs, name)).collect(), sgd())
        };
        Sgd::from_param_groups([group(first), group(second)]).unwrap()
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
    assert_eq!(refused(groups(&["backbone.weight"], &["backbone.bias", "head"])), expected);
    let expected = "parameter group 0 of the optimizer state is one without head.bias, but must be one with it, as \
                    this optimizer's is";
    assert_eq!(refused(groups(&["backbone", "head.bias"], &["head.weight"])), expected);
    // The order within a group is of no importance.
    let mut turned = groups(&["backbone.bias", "backbone.weight"], &["head"]);
    turned.load_state_dict(&state).unwrap();
}
