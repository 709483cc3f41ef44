//! The rules by which the scale moves, and in which order the methods are to be called.

use crate::prelude::*;

fn scaling() -> GradScalerOptions {
    GradScalerOptions { init_scale: 1024.0, growth_interval: 2, ..Default::default() }
}

/// One weight, 1, whose gradient is what the loss is multiplied by.
struct Problem {
    weight: Tensor,
    optimizer: Sgd,
    scaler: GradScaler,
}

impl Problem {
    fn new(options: GradScalerOptions) -> Problem {
        let vs = VarStore::new(Device::Cpu);
        let weight = vs.root().ones("weight", &[1]);
        let optimizer = Sgd::new(&vs, SgdOptions { lr: 0.25, ..Default::default() }).unwrap();
        Problem { weight, optimizer, scaler: GradScaler::new(options).unwrap() }
    }

    fn backward(&mut self, slope: f64) {
        self.optimizer.zero_grad().unwrap();
        self.scaler.scale(&(&self.weight * slope).sum(Kind::Float)).unwrap().backward();
    }

    fn iteration(&mut self, slope: f64) -> bool {
        self.backward(slope);
        let made = self.scaler.step(&mut self.optimizer).unwrap();
        self.scaler.update().unwrap();
        made
    }

    fn weight(&self) -> f64 {
        self.weight.double_value(&[0])
    }

    fn gradient(&self) -> f64 {
        self.weight.grad().double_value(&[0])
    }

    fn scale(&self) -> f64 {
        self.scaler.get_scale().unwrap()
    }
}

#[test]
fn gradients_are_scaled_for_the_backward_pass_and_not_for_the_step() {
    for looked_at_before in [false, true] {
        let mut problem = Problem::new(scaling());
        problem.backward(2.0);
        assert_eq!(problem.gradient(), 2.0 * 1024.0);
        if looked_at_before {
            problem.scaler.unscale_(&mut problem.optimizer).unwrap();
            assert_eq!(problem.gradient(), 2.0);
        }
        assert!(problem.scaler.step(&mut problem.optimizer).unwrap());
        assert_eq!((problem.gradient(), problem.weight()), (2.0, 1.0 - 0.25 * 2.0));
    }
}

#[test]
fn a_step_with_an_overflow_is_left_out_and_the_scale_shrinks() {
    for slope in [f64::INFINITY, f64::NAN, 1e37] {
        let mut problem = Problem::new(scaling());
        assert!(!problem.iteration(slope));
        assert_eq!((problem.weight(), problem.scale()), (1.0, 512.0));
    }
}

#[test]
fn one_optimizers_overflow_does_not_stop_the_other() {
    let [mut problem, mut other] = [(); 2].map(|()| Problem::new(scaling()));
    problem.backward(1.0);
    problem.scaler.scale(&(&other.weight * f64::INFINITY).sum(Kind::Float)).unwrap().backward();
    assert!(problem.scaler.step(&mut problem.optimizer).unwrap());
    assert!(!problem.scaler.step(&mut other.optimizer).unwrap());
    problem.scaler.update().unwrap();
    assert_eq!(problem.scale(), 512.0);
}

#[test]
fn the_gradients_of_all_parameter_groups_are_unscaled_and_one_overflow_stops_all() {
    let vs = VarStore::new(Device::Cpu);
    let [first, second] = [0, 1].map(|group| vs.root().set_group(group).ones("weight", &[1]));
    let options = SgdOptions { lr: 0.25, ..Default::default() };
    let slow = SgdOptions { lr: 0.125, ..options };
    let mut optimizer = Sgd::with_group_options(&vs, [(0, options), (1, slow)]).unwrap();
    let mut scaler = GradScaler::new(scaling()).unwrap();
    let mut iteration = |slope: f64| {
        optimizer.zero_grad().unwrap();
        scaler.scale(&(&first * 2.0 + &second * slope).sum(Kind::Float)).unwrap().backward();
        scaler.step(&mut optimizer).unwrap();
        scaler.update().unwrap();
        [first.double_value(&[0]), second.double_value(&[0])]
    };
    assert_eq!(iteration(4.0), [0.5, 0.5]);
    assert_eq!(iteration(f64::INFINITY), [0.5, 0.5]);
}

#[test]
fn turned_off_it_does_nothing() {
    let mut problem = Problem::new(GradScalerOptions { enabled: false, ..scaling() });
    assert!(problem.iteration(2.0));
    assert_eq!((problem.weight(), problem.gradient(), problem.scale()), (0.5, 2.0, 1.0));
    assert_eq!(problem.scaler.state_dict().unwrap(), None);
}

#[test]
fn it_goes_on_from_a_saved_state() {
    let mut before = Problem::new(scaling());
    before.iteration(f64::INFINITY);
    before.iteration(1.0);
    let state = before.scaler.state_dict().unwrap().unwrap();
    let expected = r#"{"scale":512.0,"growth_factor":2.0,"backoff_factor":0.5,"growth_interval":2,"_growth_tracker":1}"#;
    assert_eq!(serde_json::to_string(&state).unwrap(), expected);
    let mut after = Problem::new(GradScalerOptions::default());
    after.iteration(1.0);
    after.scaler.load_state_dict(&state);
    assert_eq!(after.scale(), 512.0);
    after.iteration(1.0);
    assert_eq!(after.scale(), 1024.0);
}

#[test]
fn what_is_called_out_of_turn_is_refused() {
    let mut problem = Problem::new(scaling());
    let step = |problem: &mut Problem| problem.scaler.step(&mut problem.optimizer).map(|_| ());
    let expected = "unscale_ is called before scale, but must be called after the backward pass of a scaled loss";
    assert_eq!(message(step(&mut problem)), expected);
    problem.backward(1.0);
    let expected = "update is called without a step, but must be called after step";
    assert_eq!(message(problem.scaler.update()), expected);
    problem.scaler.unscale_(&mut problem.optimizer).unwrap();
    let expected = "unscale_ is called twice, but must be called once before update";
    assert_eq!(message(problem.scaler.unscale_(&mut problem.optimizer)), expected);
    step(&mut problem).unwrap();
    let expected = "step is called twice, but must be called once before update";
    assert_eq!(message(step(&mut problem)), expected);
}

#[test]
fn gradients_must_be_there_and_of_32_bits() {
    let mut problem = Problem::new(scaling());
    problem.backward(1.0);
    problem.optimizer.zero_grad().unwrap();
    let expected = "the optimizer is without a gradient, but must be stepped after a backward pass";
    assert_eq!(message(problem.scaler.unscale_(&mut problem.optimizer)), expected);

    let half = Tensor::ones([1], (Kind::Half, Device::Cpu)).set_requires_grad(true);
    (&half * 2.0).sum(Kind::Half).backward();
    let named = vec![("half".into(), half)];
    let mut optimizer = Sgd::from_named_parameters(named, SgdOptions::default()).unwrap();
    let expected =
        "a gradient is of Half, but must be of Float: parameters stay in 32 bits under autocast";
    assert_eq!(message(problem.scaler.unscale_(&mut optimizer)), expected);
}

#[test]
fn factors_and_scales_that_no_run_could_work_with_are_refused_only_with_scaling() {
    for init_scale in [f64::NAN, f64::INFINITY, 1e39] {
        let message = refused(GradScalerOptions { init_scale, ..scaling() });
        assert!(message.ends_with("but must be a finite 32-bit number"), "{message}");
    }
    for (growth_factor, found) in [(f64::INFINITY, "inf"), (1.0, "1")] {
        let expected = format!("growth_factor is {found}, but must be a finite number above 1");
        assert_eq!(refused(GradScalerOptions { growth_factor, ..scaling() }), expected);
    }
    let expected = "backoff_factor is 1, but must be a finite number below 1";
    assert_eq!(refused(GradScalerOptions { backoff_factor: 1.0, ..scaling() }), expected);
}

/// The message of these options' refusal. Without scaling, they are not refused.
fn refused(options: GradScalerOptions) -> String {
    GradScaler::new(GradScalerOptions { enabled: false, ..options }).unwrap();
    GradScaler::new(options).unwrap_err().to_string()
}

#[test]
fn sparse_gradients_are_unscaled_and_an_overflow_in_them_is_found() {
    for (slope, made, row) in [(1.0, true, [-0.5f32; 2]), (f64::INFINITY, false, [0.0; 2])] {
        let vs = VarStore::new(Device::Cpu);
        let table = vs.root().zeros("table", &[5, 2]);
        let mut sgd = Sgd::new(&vs, SgdOptions { lr: 0.25, ..Default::default() }).unwrap();
        let mut scaler = GradScaler::new(scaling()).unwrap();
        let words = Tensor::from_slice(&[1i64, 3, 1]);
        let vectors = Tensor::embedding(&table, &words, -1, false, true);
        scaler.scale(&(vectors * slope).sum(Kind::Float)).unwrap().backward();
        assert!(table.grad().is_sparse());
        assert_eq!(scaler.step(&mut sgd).unwrap(), made);
        assert_eq!(table.get(1), Tensor::from_slice(&row));
    }
}

#[run_by(on_ranks(2))]
fn an_overflow_on_one_rank_skips_the_step_on_all(group: &ProcessGroup) {
    let (vs, model) = ddp(group, Default::default(), |p| nn::linear(p, 4, 2, Default::default()));
    let mut optimizer = Sgd::new(&vs, SgdOptions::default()).unwrap();
    // Small enough that no weights make 16-bit gradients overflow.
    let options = GradScalerOptions { init_scale: 1024.0, ..Default::default() };
    let mut scaler = GradScaler::new(options).unwrap();
    let mut iteration = |factor: f64| {
        let xs = Tensor::ones([3, 4], FLOAT_CPU);
        let loss = autocast(Device::Cpu, Some(Kind::Half), || {
            model.f_forward_t(&xs, true).unwrap().square().mean(Kind::Float) * factor
        });
        optimizer.zero_grad().unwrap();
        model.backward(&scaler.scale(&loss.unwrap()).unwrap()).unwrap();
        let made = scaler.step(&mut optimizer).unwrap();
        scaler.update().unwrap();
        (made, scaler.get_scale().unwrap())
    };
    assert_eq!(iteration(1.0), (true, 1024.0));
    // Before the exchange only rank 1's gradients are not finite.
    let factor = if group.rank() == 1 { f64::INFINITY } else { 1.0 };
    assert_eq!(iteration(factor), (false, 512.0));
    assert_eq!(iteration(1.0), (true, 512.0));
}
