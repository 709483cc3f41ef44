//! What schedules refuse, and how they start and resume in special cases. The rates of all of them, with and without an
//! interruption, are compared with Python's: see the example lr_schedules.

use super::super::*;
use super::*;
use crate::{ParamGroup, Sgd, SgdOptions};

fn sgd(lrs: &[f64]) -> Sgd {
    Sgd::from_param_groups(lrs.iter().map(|&lr| group(lr))).unwrap()
}

fn group(lr: f64) -> ParamGroup<SgdOptions> {
    ParamGroup::new(vec![], SgdOptions { lr, momentum: 0.5, ..Default::default() })
}

#[test]
fn a_schedule_starts_from_the_rate_that_the_optimizer_was_created_with_even_if_it_resumes() {
    let mut optimizer = sgd(&[0.5, 0.25]);
    LrScheduler::new(&mut optimizer, LinearLr { start_factor: 0.4, ..Default::default() }).unwrap();
    assert_eq!((optimizer.lr(), optimizer.param_groups()[0].initial_lr), (0.2, Some(0.5)));
    let mut resumed = sgd(&[0.001, 0.001]);
    resumed.load_state_dict(&optimizer.state_dict().unwrap()).unwrap();
    let lambda = LrScheduler::new(&mut resumed, LambdaLr::new(|_| 1.0)).unwrap();
    assert_eq!(lambda.last_lr(), [0.5, 0.25]);
}

#[test]
fn a_lambda_goes_on_from_a_saved_state_with_the_function_that_it_has() {
    let scheduler = |optimizer: &mut Sgd, factor: f64| {
        LrScheduler::new(optimizer, LambdaLr::new(move |epoch| factor * epoch as f64)).unwrap()
    };
    let mut before = sgd(&[0.5]);
    let mut saved = scheduler(&mut before, 1.0);
    (0..3).for_each(|_| saved.step(&mut before).unwrap());
    let mut after = sgd(&[0.25]);
    let mut resumed = scheduler(&mut after, 0.1);
    resumed.load_state_dict(&saved.state_dict().unwrap()).unwrap();
    resumed.step(&mut after).unwrap();
    assert_eq!(after.lr(), 0.5 * (0.1 * 4.0));
}

#[test]
fn the_state_of_other_settings_is_refused() {
    let mut optimizer = sgd(&[0.5]);
    let state = LrScheduler::new(&mut optimizer, StepLr::new(30)).unwrap().state_dict().unwrap();
    let mut other = LrScheduler::new(&mut optimizer, StepLr::new(10)).unwrap();
    let error = other.load_state_dict(&state).unwrap_err().to_string();
    let expected = "the state of the schedule is that of StepLr { step_size: 30, gamma: 0.1 }, but must be that of \
                    StepLr { step_size: 10, gamma: 0.1 }; resume with the schedule that it was saved with";
    assert_eq!(error, expected);
    let mut plateau = ReduceLrOnPlateau::new(&optimizer, Default::default()).unwrap();
    assert!(plateau.load_state_dict(&state).is_err());
}

#[test]
fn a_group_that_was_added_needs_a_value_in_each_list() {
    let mut optimizer = sgd(&[0.5]);
    let mut listed = LrScheduler::new(&mut optimizer, OneCycleLr::new([0.1], 9)).unwrap();
    optimizer.add_param_group(group(1.0)).unwrap();
    let error = listed.step(&mut optimizer).unwrap_err().to_string();
    assert_eq!(error, "the length of max_lr is 1, but must be 2, one for each parameter group");
}

#[test]
fn the_metric_that_reduces_the_rate_is_the_first_beyond_the_patience() {
    let options = ReduceLrOnPlateauOptions { patience: 2, ..Default::default() };
    let mut optimizer = sgd(&[0.5]);
    let mut scheduler = ReduceLrOnPlateau::new(&optimizer, options).unwrap();
    for metric in [1.0, f64::NAN, 1.0] {
        scheduler.step(&mut optimizer, metric).unwrap();
        assert_eq!(optimizer.lr(), 0.5);
    }
    scheduler.step(&mut optimizer, 1.0).unwrap();
    assert_eq!((scheduler.last_lr(), scheduler.best()), (&[0.05][..], 1.0));
}

#[test]
fn no_step_follows_the_last_of_a_cycle_and_nothing_has_changed_then() {
    let mut optimizer = sgd(&[0.5]);
    let mut scheduler = LrScheduler::new(&mut optimizer, OneCycleLr::new(0.1, 4)).unwrap();
    (0..4).for_each(|_| scheduler.step(&mut optimizer).unwrap());
    let before = optimizer.param_groups()[0].options;
    let error = scheduler.step(&mut optimizer).unwrap_err().to_string();
    assert_eq!(error, "the number of steps is 5, but must be at most total_steps, which is 4");
    assert_eq!((optimizer.param_groups()[0].options, scheduler.last_epoch()), (before, 4));
}

/// Why the schedule is refused for two parameter groups.
fn refused(schedule: impl Schedule) -> String {
    LrScheduler::new(&mut sgd(&[0.5, 0.5]), schedule).unwrap_err().to_string()
}

#[test]
fn settings_that_no_run_could_work_with_are_refused() {
    let linear =
        |start_factor, end_factor| LinearLr { start_factor, end_factor, ..Default::default() };
    let cosine = |eta_min| CosineAnnealingLr { t_max: 1, eta_min };
    let restarts = CosineAnnealingWarmRestarts::new(5);
    let one_cycle = |pct_start| OneCycleLr { pct_start, ..OneCycleLr::new(0.1, 10) };
    let cyclic = || CyclicLr::new(0.1, 0.2);
    let max_momentum = [0.1; 3].into();
    let max_momenta = OneCycleLr { max_momentum, ..one_cycle(0.3) };
    let momenta = CyclicLr { base_momentum: [0.1; 3].into(), ..cyclic() };
    let lambda = LambdaLr::per_group(vec![Box::new(|_| 1.0)]);
    let multiplicative = MultiplicativeLr::per_group(vec![Box::new(|_| 1.0)]);
    let sequential = |milestones| SequentialLr {
        schedules: vec![Box::new(StepLr::new(1)), Box::new(restarts)],
        milestones,
    };
    let chained = |schedules| ChainedScheduler { schedules };
    let epoch = "1 epoch or more";
    let (fraction, factor) = ("from 0 to 1", "above 0 and at most 1");
    let number = "a number not below 0";
    let one_each = "2, one for each parameter group";
    let one_more = "one more than the number of milestones";
    let ascending = "epochs from 1 on, each after the one before";
    for (refused, what, expected) in [
        (refused(StepLr::new(0)), "step_size is 0", epoch),
        (refused(CosineAnnealingLr::new(0)), "t_max is 0", epoch),
        (refused(PolynomialLr { total_iters: 0, power: 1.0 }), "total_iters is 0", epoch),
        (refused(OneCycleLr::new(0.1, 0)), "total_steps is 0", epoch),
        (refused(CosineAnnealingWarmRestarts { t_0: 0, ..restarts }), "t_0 is 0", epoch),
        (refused(CosineAnnealingWarmRestarts { t_mult: 0, ..restarts }), "t_mult is 0", epoch),
        (refused(CyclicLr { step_size_up: 0, ..cyclic() }), "step_size_up is 0", epoch),
        (refused(cosine(f64::INFINITY)), "eta_min is inf", "a learning rate, not below 0"),
        (refused(linear(0.0, 1.0)), "start_factor is 0", factor),
        (refused(ConstantLr { factor: 1.5, total_iters: 5 }), "factor is 1.5", factor),
        (refused(ConstantLr { factor: -0.1, total_iters: 5 }), "factor is -0.1", factor),
        (refused(linear(1.0, 2.0)), "end_factor is 2", fraction),
        (refused(one_cycle(1.5)), "pct_start is 1.5", fraction),
        (refused(one_cycle(-0.5)), "pct_start is -0.5", fraction),
        (refused(MultiStepLr { milestones: vec![], gamma: f64::NAN }), "gamma is NaN", number),
        (refused(ExponentialLr { gamma: -0.9 }), "gamma is -0.9", number),
        (refused(LambdaLr::new(|_| f64::NAN)), "lr_lambda(0) is NaN", number),
        (refused(lambda), "the length of lr_lambda is 1", one_each),
        (refused(multiplicative), "the length of lr_lambda is 1", one_each),
        (refused(SwaLr::new([0.1])), "the length of swa_lr is 1", one_each),
        (refused(OneCycleLr::new([0.1], 9)), "the length of max_lr is 1", one_each),
        (refused(CyclicLr::new([0.1], 0.2)), "the length of base_lr is 1", one_each),
        (refused(CyclicLr::new(0.1, [0.2; 3])), "the length of max_lr is 3", one_each),
        (refused(max_momenta), "the length of max_momentum is 3", one_each),
        (refused(momenta), "the length of base_momentum is 3", one_each),
        (refused(sequential(vec![])), "the number of schedules is 2, with 0 milestones", one_more),
        (refused(sequential(vec![0])), "milestones is [0]", ascending),
        (refused(chained(vec![])), "the number of schedules is 0", "at least 1"),
    ] {
        assert_eq!(refused, format!("{what}, but must be {expected}"));
    }
    // The rise takes no step: 0 / 0.
    let error = refused(one_cycle(0.1));
    assert!(error.starts_with("the rate of parameter group 0 in epoch 0 of OneCycleLr"), "{error}");
    assert!(error.ends_with("is NaN, but must be a finite number"), "{error}");
    let error = refused(chained(vec![Box::new(StepLr::new(1)), Box::new(OneCycleLr::new(0.1, 9))]));
    assert!(error.ends_with("it sets the rate that others start from"), "{error}");

    let plateau = |options| ReduceLrOnPlateau::new(&sgd(&[0.5]), options).unwrap_err().to_string();
    let error = plateau(ReduceLrOnPlateauOptions { factor: 1.0, ..Default::default() });
    assert_eq!(error, "factor is 1, but must be below 1");
    let min_lr = [0.1, 0.2].into();
    let error = plateau(ReduceLrOnPlateauOptions { min_lr, ..Default::default() });
    assert_eq!(error, "the length of min_lr is 2, but must be 1, one for each parameter group");

    let mut optimizer = sgd(&[0.5]);
    let mut scheduler = LrScheduler::new(&mut optimizer, restarts).unwrap();
    let error = scheduler.step_to(&mut optimizer, -1.0).unwrap_err().to_string();
    assert_eq!(error, "epoch is -1, but must be a number not below 0");
}
