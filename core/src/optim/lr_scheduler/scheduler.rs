//! Applies a schedule to an optimizer: PyTorch's base class `LRScheduler`.

use super::schedule::Schedule;
use crate::optim::Optimizer;
use crate::{Error, Result};
use serde::{Deserialize, Serialize};

/// The state of a schedule, and the learning rate that it has set. PyTorch's base class
/// `LRScheduler`; there is an example in the [module](super).
#[derive(Debug)]
pub struct LrScheduler {
    schedule: Box<dyn Schedule>,
    last_epoch: u64,
    base_lr: f64,
    last_lr: f64,
}

/// What [`LrScheduler::state_dict`] returns.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LrSchedulerState {
    /// The schedule and its settings.
    pub schedule: String,
    /// The number of steps of the scheduler.
    pub last_epoch: u64,
    /// The learning rate that the optimizer was created with.
    pub base_lr: f64,
    /// The last rate that the scheduler set.
    pub last_lr: f64,
}

impl LrScheduler {
    /// Starts the schedule: sets the optimizer's learning rate to that of epoch 0, which may differ
    /// from the rate that the optimizer was created with.
    ///
    /// # Errors
    /// [`Error::Argument`] for settings that no run could use.
    pub fn new(optimizer: &mut dyn Optimizer, schedule: impl Schedule + 'static) -> Result<Self> {
        schedule.check()?;
        let base_lr = optimizer.lr();
        let last_lr = schedule.first(base_lr);
        optimizer.set_lr(last_lr);
        Ok(LrScheduler { schedule: Box::new(schedule), last_epoch: 0, base_lr, last_lr })
    }

    /// Advances to the next epoch and sets the learning rate for its steps. Call this after the
    /// optimizer's steps of an epoch, or after every step if the schedule counts steps.
    ///
    /// Steps that [`GradScaler`](crate::amp::GradScaler) skipped count too, as in PyTorch.
    pub fn step(&mut self, optimizer: &mut dyn Optimizer) {
        self.last_epoch += 1;
        self.last_lr = self.schedule.next(self.last_epoch, optimizer.lr(), self.base_lr);
        optimizer.set_lr(self.last_lr);
    }

    /// The last learning rate that was set: `get_last_lr()`.
    pub fn last_lr(&self) -> f64 {
        self.last_lr
    }

    /// The number of calls of [`step`](Self::step).
    pub fn last_epoch(&self) -> u64 {
        self.last_epoch
    }

    /// The state of the schedule. The learning rate itself is in the optimizer's state.
    pub fn state_dict(&self) -> LrSchedulerState {
        LrSchedulerState {
            schedule: format!("{:?}", self.schedule),
            last_epoch: self.last_epoch,
            base_lr: self.base_lr,
            last_lr: self.last_lr,
        }
    }

    /// Restores a state. Also restore the optimizer's, before or after.
    ///
    /// # Errors
    /// [`Error::Argument`] for the state of another schedule, or of the same one with other
    /// settings. PyTorch would continue with the saved settings: resuming with more epochs than
    /// before would make a cosine rise again.
    pub fn load_state_dict(&mut self, state: &LrSchedulerState) -> Result<()> {
        let own = format!("{:?}", self.schedule);
        if state.schedule != own {
            return Err(Error::Argument {
                what: "the state of the schedule".into(),
                found: format!("that of {}", state.schedule),
                expected: format!("that of {own}; resume with the schedule that it was saved with"),
            });
        }
        self.last_epoch = state.last_epoch;
        self.base_lr = state.base_lr;
        self.last_lr = state.last_lr;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::{
        CosineAnnealingLr, ExponentialLr, LambdaLr, LinearLr, MultiStepLr, SequentialLr, StepLr,
    };
    use super::*;
    use crate::optim::{Sgd, SgdOptions};
    use approx::assert_relative_eq;

    fn optimizer() -> Sgd {
        Sgd::from_named_parameters(vec![], SgdOptions { lr: 0.5, ..Default::default() }).unwrap()
    }

    fn warm_up_then_cosine() -> SequentialLr {
        let warm_up = LinearLr { start_factor: 0.1, ..Default::default() };
        let then = CosineAnnealingLr { t_max: 10, eta_min: 0.01 };
        SequentialLr { schedules: vec![Box::new(warm_up), Box::new(then)], milestones: vec![5] }
    }

    fn rates(schedule: impl Schedule + 'static, epochs: usize) -> Vec<f64> {
        let mut optimizer = optimizer();
        let mut scheduler = LrScheduler::new(&mut optimizer, schedule).unwrap();
        let rates = (0..epochs).map(|_| {
            let lr = optimizer.lr();
            scheduler.step(&mut optimizer);
            assert_eq!(scheduler.last_lr(), optimizer.lr());
            lr
        });
        rates.collect()
    }

    /// The defining formulas of the schedules. Only a comparison with Python can show that the bits
    /// are equal.
    #[test]
    fn rates_follow_the_formulas() {
        let step = rates(StepLr { step_size: 2, gamma: 0.5 }, 5);
        assert_eq!(step, [0.5, 0.5, 0.25, 0.25, 0.125]);
        let multi_step = rates(MultiStepLr { milestones: vec![3, 1, 3], gamma: 0.5 }, 5);
        assert_eq!(multi_step, [0.5, 0.25, 0.25, 0.0625, 0.0625]);
        assert_eq!(rates(ExponentialLr { gamma: 0.5 }, 4), [0.5, 0.25, 0.125, 0.0625]);
        let lambda = rates(LambdaLr::new(|epoch| 1.0 / (epoch as f64 + 1.0)), 4);
        assert_eq!(lambda, [0.5, 0.5 * (1.0 / 2.0), 0.5 * (1.0 / 3.0), 0.5 * (1.0 / 4.0)]);
        let both = rates(warm_up_then_cosine(), 16);
        for (epoch, &lr) in both.iter().enumerate() {
            let expected = match epoch {
                0..5 => 0.5 * (0.1 + 0.9 * epoch as f64 / 5.0),
                _ => {
                    let angle = std::f64::consts::PI * (epoch - 5) as f64 / 10.0;
                    0.01 + 0.49 * (1.0 + angle.cos()) / 2.0
                }
            };
            assert_relative_eq!(lr, expected, max_relative = 1e-12);
        }
    }

    #[test]
    fn a_schedule_goes_on_from_a_saved_state_as_if_it_had_not_been_interrupted() {
        let whole = rates(warm_up_then_cosine(), 12);
        for interrupted_at in 0..12 {
            let mut before = optimizer();
            let mut scheduler = LrScheduler::new(&mut before, warm_up_then_cosine()).unwrap();
            (0..interrupted_at).for_each(|_| scheduler.step(&mut before));
            let text = serde_json::to_string(&scheduler.state_dict()).unwrap();
            let state = before.state_dict().unwrap();

            let mut after = optimizer();
            let mut scheduler = LrScheduler::new(&mut after, warm_up_then_cosine()).unwrap();
            scheduler.load_state_dict(&serde_json::from_str(&text).unwrap()).unwrap();
            after.load_state_dict(&state).unwrap();
            for &lr in &whole[interrupted_at..] {
                assert_eq!(after.lr(), lr);
                scheduler.step(&mut after);
            }
        }
    }

    #[test]
    fn a_lambda_goes_on_from_a_saved_state_with_the_function_that_it_has() {
        let mut optimizer = optimizer();
        let mut scheduler = |factor: f64| {
            LrScheduler::new(&mut optimizer, LambdaLr::new(move |epoch| factor * epoch as f64))
        };
        let state = LrSchedulerState { last_epoch: 3, ..scheduler(1.0).unwrap().state_dict() };
        let mut resumed = scheduler(0.1).unwrap();
        resumed.load_state_dict(&state).unwrap();
        resumed.step(&mut optimizer);
        assert_eq!(optimizer.lr(), state.base_lr * (0.1 * 4.0));
    }

    #[test]
    fn the_state_of_other_settings_is_refused() {
        let mut optimizer = optimizer();
        let state = LrScheduler::new(&mut optimizer, StepLr::new(30)).unwrap().state_dict();
        let mut other = LrScheduler::new(&mut optimizer, StepLr::new(10)).unwrap();
        let error = other.load_state_dict(&state).unwrap_err().to_string();
        assert_eq!(
            error,
            "the state of the schedule is that of StepLr { step_size: 30, gamma: 0.1 }, but must be \
             that of StepLr { step_size: 10, gamma: 0.1 }; resume with the schedule that it was \
             saved with"
        );
    }

    #[test]
    fn settings_that_no_run_could_work_with_are_refused() {
        let refused = |schedule: Box<dyn Schedule>| {
            LrScheduler::new(&mut optimizer(), schedule).unwrap_err().to_string()
        };
        let linear = |start_factor, end_factor| {
            Box::new(LinearLr { start_factor, end_factor, ..Default::default() })
        };
        let sequential = |milestones| SequentialLr { milestones, ..warm_up_then_cosine() };
        assert_eq!(
            refused(Box::new(StepLr::new(0))),
            "step_size is 0, but must be 1 epoch or more"
        );
        assert_eq!(
            refused(Box::new(CosineAnnealingLr::new(0))),
            "t_max is 0, but must be 1 epoch or more"
        );
        assert_eq!(
            refused(Box::new(CosineAnnealingLr { t_max: 1, eta_min: f64::INFINITY })),
            "eta_min is inf, but must be a learning rate, not below 0"
        );
        assert_eq!(
            refused(linear(0.0, 1.0)),
            "start_factor is 0, but must be above 0 and at most 1"
        );
        assert_eq!(refused(linear(1.0, 2.0)), "end_factor is 2, but must be from 0 to 1");
        assert_eq!(
            refused(Box::new(MultiStepLr { milestones: vec![], gamma: f64::NAN })),
            "gamma is NaN, but must be a number not below 0"
        );
        assert_eq!(
            refused(Box::new(ExponentialLr { gamma: -0.9 })),
            "gamma is -0.9, but must be a number not below 0"
        );
        assert_eq!(
            refused(Box::new(LambdaLr::new(|_| f64::NAN))),
            "lr_lambda(0) is NaN, but must be a number not below 0"
        );
        assert_eq!(
            refused(Box::new(sequential(vec![]))),
            "the number of schedules is 2, with 0 milestones, but must be one more than the number \
             of milestones"
        );
        assert_eq!(
            refused(Box::new(sequential(vec![0]))),
            "milestones is [0], but must be epochs from 1 on, each after the one before"
        );
    }
}
