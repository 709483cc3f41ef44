//! A resumed run takes the same course as one that was not interrupted.

use crate::prelude::*;
use tch_parallel::optim::lr_scheduler::{LrScheduler, OneCycleLr, Scheduler};

/// A number of steps, and the arguments.
type Progress = (i64, Vec<String>);

/// Covers all state that a checkpoint must hold: draws random numbers in every step, different ones on each rank; has
/// running statistics; has counters in its optimizer, its schedule and its scaler, which skips steps.
struct Job {
    vs: VarStore,
    model: DistributedDataParallel<nn::SequentialT>,
    optimizer: Adam,
    scheduler: LrScheduler<OneCycleLr>,
    scaler: GradScaler,
    group: ProcessGroup,
}

impl Job {
    fn new(group: &ProcessGroup, seed: i64) -> Job {
        tch::manual_seed(seed + group.rank() as i64);
        let (vs, model) = ddp(group, DdpOptions::default(), |p| {
            nn::seq_t()
                .add(nn::linear(p / "0", 6, 8, Default::default()))
                .add(nn::batch_norm1d(p / "1", 8, Default::default()))
                .add_fn_t(|xs, train| xs.dropout(0.5, train))
                .add(nn::linear(p / "2", 8, 3, Default::default()))
        });
        let mut optimizer =
            Adam::new(&vs, AdamOptions { lr: 0.01, ..AdamOptions::adamw() }).unwrap();
        let scheduler = LrScheduler::new(&mut optimizer, OneCycleLr::new(0.01, 30)).unwrap();
        // The initial scale overflows with these gradients, and so does the scale that it grows to later.
        let options = GradScalerOptions { growth_interval: 2, ..Default::default() };
        let scaler = GradScaler::new(options).unwrap();
        Job { vs, model, optimizer, scheduler, scaler, group: group.clone() }
    }

    /// Makes these steps. For each: true if it was made, false if skipped because of an overflow.
    fn train(&mut self, steps: std::ops::Range<i64>) -> Vec<bool> {
        let step = |step: i64| {
            let offset = step * 7 + self.group.rank() as i64;
            let xs = (Tensor::arange(5 * 6, FLOAT_CPU) + offset).sin().view([5, 6]);
            let labels = Tensor::from_slice(&[0i64, 1, 2, 1, 0]);
            let loss = autocast(Device::Cpu, Some(Kind::Half), || {
                self.model.f_forward_t(&xs, true).unwrap().cross_entropy_for_logits(&labels)
            });
            self.optimizer.zero_grad().unwrap();
            self.model.backward(&self.scaler.scale(&loss.unwrap()).unwrap()).unwrap();
            let made = self.scaler.step(&mut self.optimizer).unwrap();
            self.scaler.update().unwrap();
            self.scheduler.step(&mut self.optimizer).unwrap();
            made
        };
        steps.map(step).collect()
    }

    fn parts(&mut self) -> Training<'_> {
        let (vs, optimizer) = (&mut self.vs, &mut self.optimizer);
        let (scheduler, scaler) = (&mut self.scheduler, Some(&mut self.scaler));
        Training { architecture: "mlp", vs, optimizer, scheduler: Some(scheduler), scaler }
    }

    /// Everything that the next step depends on, except the generators.
    fn state(&self) -> impl PartialEq + std::fmt::Debug + use<> {
        let variables = self.vs.variables().into_iter().map(|(name, t)| (name, t.copy()));
        let (optimizer, scheduler) = (self.optimizer.state_dict(), self.scheduler.state_dict());
        let scaler = self.scaler.state_dict().unwrap();
        (variables.collect::<BTreeMap<_, _>>(), optimizer.unwrap(), scheduler.unwrap(), scaler)
    }
}

// Sums of three numbers are rounded by the order in which they are added up, and that depends
// on a gradient's place in its bucket, so the order of the buckets must be kept as well.
#[run_by(on_ranks(3))]
fn a_resumed_training_takes_the_course_of_an_uninterrupted_one(group: &ProcessGroup) {
    let path = "training.safetensors";
    let progress: Progress = (5, vec!["--lr".into(), "0.01".into()]);
    let mut whole = Job::new(group, 1);
    let before = whole.train(0..5);
    whole.parts().save(path, &progress, group).unwrap();
    let after = whole.train(5..12);
    for made in [before, after] {
        assert!(made.contains(&true) && made.contains(&false), "the scaler: {made:?}");
    }
    // With another seed, anything that is not loaded shows up.
    let mut resumed = Job::new(group, 100);
    // A pass that is given up changes nothing.
    let _ = resumed.model.f_forward_t(&Tensor::ones([5, 6], FLOAT_CPU), true).unwrap();
    let found = resumed.parts().load::<Progress>(path, group).unwrap();
    assert_eq!((found.progress, found.generators), (progress, Generators::Restored));
    resumed.train(5..12);
    assert_eq!(resumed.state(), whole.state());
    // The negative control: with other random numbers the run takes another course.
    let _ = resumed.parts().load::<Progress>(path, group).unwrap();
    tch::manual_seed(100);
    resumed.train(5..12);
    assert_ne!(resumed.state(), whole.state());
}

#[run_by(on_ranks(3))]
fn fewer_ranks_continue_what_more_have_saved(group: &ProcessGroup) {
    let path = "training.safetensors";
    let mut saved = Job::new(group, 1);
    saved.train(0..5);
    // Larger than the store accepts, through which the ranks compare what they read.
    let progress = "step 5, ".repeat(2 << 20);
    saved.parts().save(path, &progress, group).unwrap();
    let Some(two) = group.new_group(&[0, 1]).unwrap() else { return group.barrier().unwrap() };
    let mut resumed = Job::new(&two, 100);
    let found = resumed.parts().load::<String>(path, &two).unwrap();
    assert_eq!(found.generators, Generators::OtherWorldSize { saved: 3 });
    assert!(found.progress == progress);
    // The running statistics are those of rank 0 until the first forward pass.
    if group.rank() == 0 {
        assert_eq!(resumed.state(), saved.state());
    }
    assert!(resumed.train(5..12).contains(&true));
    let weight = resumed.vs.variables()["0.weight"].copy();
    assert_eq!(two.all_gather(&weight).unwrap(), [weight.copy(), weight]);
    group.barrier().unwrap();
}

#[run_by(on_ranks(2))]
fn if_ranks_find_different_files_or_one_finds_none_all_are_told_why_and_stop(group: &ProcessGroup) {
    let path = |number: usize| format!("{number}.safetensors");
    let mut job = Job::new(group, 1);
    (0..2).for_each(|number| job.parts().save(path(number), &number, group).unwrap());
    let different = job.parts().load::<usize>(path(group.rank()), group);
    expect_error(different, "not the training that rank 0 has read");
    for unlucky in 0..2 {
        let path = path(if group.rank() == unlucky { 2 } else { 0 });
        expect_error(job.parts().load::<usize>(path, group), "cannot read 2.safetensors");
    }
}
