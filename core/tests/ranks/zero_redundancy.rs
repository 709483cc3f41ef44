//! A sharded optimizer computes what the whole one does, with only its share of the memory.

use crate::prelude::*;
use tch_parallel::optim::lr_scheduler::{LrScheduler, StepLr};

/// A model and its optimizer, trained on data that differs from rank to rank.
struct Job {
    inputs: i64,
    vs: VarStore,
    model: DistributedDataParallel<nn::Sequential>,
    optimizer: Box<dyn Optimizer>,
    group: ProcessGroup,
}

impl Job {
    /// Starts with the same weights each time.
    fn new(group: &ProcessGroup, widths: &[i64], make: Make, is_sharded: bool) -> Job {
        tch::manual_seed(1);
        let vs = VarStore::new(Device::Cpu);
        let mut net = nn::seq();
        for (index, pair) in widths.windows(2).enumerate() {
            let layer = nn::linear(vs.root() / index, pair[0], pair[1], Default::default());
            net = net.add(layer).add_fn(Tensor::tanh);
        }
        let model = DistributedDataParallel::new(net, &vs, group).unwrap();
        let optimizer = make(&vs, is_sharded.then_some(group));
        Job { inputs: widths[0], vs, model, optimizer, group: group.clone() }
    }

    fn loss(&self, step: i64) -> Tensor {
        let xs = numbers(&[5, self.inputs], step * 7 + self.group.rank() as i64);
        self.model.forward(|net| net.forward(&xs)).unwrap().square().mean(Kind::Float)
    }

    fn train(&mut self, steps: std::ops::Range<i64>) {
        for step in steps {
            let loss = self.loss(step);
            self.optimizer.zero_grad().unwrap();
            self.model.backward(&loss).unwrap();
            self.optimizer.step().unwrap();
        }
    }

    fn weights(&self) -> Vec<Tensor> {
        self.vs.trainable_variables().iter().map(Tensor::copy).collect()
    }

    /// On rank 0: the state of the whole optimizer, by name.
    fn state(&mut self) -> Option<OptimizerState> {
        self.optimizer.consolidate_state_dict(0).unwrap();
        (self.group.rank() == 0).then(|| {
            let mut state = self.optimizer.state_dict().unwrap();
            state.tensors.sort_by(|(a, _), (b, _)| a.cmp(b));
            state
        })
    }
}

type Make = fn(&VarStore, Option<&ProcessGroup>) -> Box<dyn Optimizer>;

fn sgd(vs: &VarStore, sharded_over: Option<&ProcessGroup>) -> Box<dyn Optimizer> {
    let options = SgdOptions { lr: 0.1, momentum: 0.9, weight_decay: 0.01, ..Default::default() };
    boxed(Sgd::new(vs, SgdOptions { nesterov: true, ..options }).unwrap(), sharded_over)
}

fn adam(vs: &VarStore, sharded_over: Option<&ProcessGroup>) -> Box<dyn Optimizer> {
    boxed(Adam::new(vs, AdamOptions::adamw()).unwrap(), sharded_over)
}

/// AdamW without decay on biases, which also have a rate of their own.
fn grouped_adam(vs: &VarStore, sharded_over: Option<&ProcessGroup>) -> Box<dyn Optimizer> {
    let (decay, no_decay) = named_parameters(vs).into_iter().partition(|(_, p)| p.dim() >= 2);
    let options = AdamOptions { weight_decay: 0.1, ..AdamOptions::adamw() };
    let optimizer = Adam::from_param_groups([
        ParamGroup::new(decay, options),
        ParamGroup::new(no_decay, AdamOptions { lr: 0.02, weight_decay: 0.0, ..options }),
    ]);
    boxed(optimizer.unwrap(), sharded_over)
}

fn boxed<R: UpdateRule>(
    optimizer: ParamGroupOptimizer<R>,
    sharded_over: Option<&ProcessGroup>,
) -> Box<dyn Optimizer> {
    match sharded_over {
        Some(group) => Box::new(ZeroRedundancyOptimizer::new(optimizer, group)),
        None => Box::new(optimizer),
    }
}

/// Whether a job's optimizer is sharded.
const WHOLE: bool = false;
const SHARDED: bool = true;

/// Ten steps, with each kind of optimizer, whole and sharded.
fn follows_the_whole_optimizer(group: &ProcessGroup, widths: &[i64]) {
    for make in [sgd as Make, adam, grouped_adam] {
        let [mut whole, mut sharded] = [WHOLE, SHARDED].map(|it| Job::new(group, widths, make, it));
        let begin = whole.weights();
        for step in 0..10 {
            whole.train(step..step + 1);
            sharded.train(step..step + 1);
            assert_eq!(sharded.weights(), whole.weights(), "step {step}");
        }
        assert_ne!(whole.weights(), begin);
        assert_eq!(sharded.state(), whole.state());
    }
}

#[run_by(on_ranks(3))]
fn on_three_ranks_weights_and_state_are_those_of_the_whole_optimizer(group: &ProcessGroup) {
    follows_the_whole_optimizer(group, &[6, 9, 7, 4]);
    // With more ranks than parameters.
    follows_the_whole_optimizer(group, &[6, 4]);
}

#[run_by(on_ranks(3))]
fn each_rank_keeps_the_state_of_its_share_only(group: &ProcessGroup) {
    let [total, own] = [WHOLE, SHARDED].map(|it| {
        let mut job = Job::new(group, &[32; 13], adam, it);
        job.train(0..1);
        job.optimizer.state_bytes()
    });
    let all = group.all_gather_object(&own).unwrap();
    assert_eq!(all.iter().sum::<usize>(), total);
    // Twelve equal layers are divided evenly over three ranks.
    assert_eq!(all, [total / 3; 3]);
}

#[run_by(on_ranks(2))]
fn a_state_that_is_spread_over_the_ranks_cannot_be_saved(group: &ProcessGroup) {
    let mut job = Job::new(group, &[6, 4], sgd, SHARDED);
    job.train(0..1);
    let refused = |job: &Job| message(job.optimizer.state_dict());
    let expected = format!(
        "the optimizer's state is sharded over the ranks, but must be gathered on this one: call \
         `consolidate_state_dict({})` on all of them",
        group.rank()
    );
    assert_eq!(refused(&job), expected);
    job.optimizer.consolidate_state_dict(1).unwrap();
    assert_eq!(job.optimizer.state_dict().is_ok(), group.rank() == 1);
    // The gathered state is now one step old.
    job.train(1..2);
    assert_eq!(refused(&job), expected);
}

#[run_by(on_ranks(2))]
fn a_checkpoint_goes_from_a_whole_optimizer_to_a_sharded_one_and_back(group: &ProcessGroup) {
    let path = "training.safetensors";
    let widths = [6, 9, 7, 4];
    let mut uninterrupted = Job::new(group, &widths, grouped_adam, WHOLE);
    uninterrupted.train(0..9);
    let mut job = Job::new(group, &widths, grouped_adam, WHOLE);
    for (from, next) in [(0, SHARDED), (3, WHOLE), (6, SHARDED)] {
        job.train(from..from + 3);
        training(&mut job.vs, &mut *job.optimizer).save(path, &from, group).unwrap();
        job = Job::new(group, &widths, grouped_adam, next);
        let _ = training(&mut job.vs, &mut *job.optimizer).load::<i64>(path, group).unwrap();
    }
    assert_eq!(job.weights(), uninterrupted.weights());
    assert_eq!(job.state(), uninterrupted.state());
}

#[run_by(on_ranks(2))]
fn a_rank_whose_step_fails_is_named_by_the_other(group: &ProcessGroup) {
    let mut job = Job::new(group, &[6, 4], sgd, SHARDED);
    job.model.backward(&job.loss(0)).unwrap();
    if group.rank() == 1 {
        // The gradients no longer fit these parameters.
        for mut parameter in job.vs.trainable_variables() {
            parameter.set_data(&Tensor::zeros([5], FLOAT_CPU));
        }
    }
    let error = message(job.optimizer.step());
    assert_eq!(error.contains("rank 1 reports: "), group.rank() == 0, "{error}");
}

#[run_by(on_ranks(2))]
fn schedules_and_scalers_work_with_it(group: &ProcessGroup) {
    let weights = |make: Make, is_sharded| {
        let mut job = Job::new(group, &[6, 9, 4], make, is_sharded);
        let mut scheduler = LrScheduler::new(&mut *job.optimizer, StepLr::new(2)).unwrap();
        let mut scaler = GradScaler::new(Default::default()).unwrap();
        for step in 0..5 {
            let loss = job.loss(step);
            job.optimizer.zero_grad().unwrap();
            job.model.backward(&scaler.scale(&loss).unwrap()).unwrap();
            assert!(scaler.step(&mut *job.optimizer).unwrap());
            scaler.update().unwrap();
            scheduler.step(&mut *job.optimizer).unwrap();
        }
        job.weights()
    };
    assert_eq!(weights(adam, SHARDED), weights(adam, WHOLE));
    assert_eq!(weights(grouped_adam, SHARDED), weights(grouped_adam, WHOLE));
}

#[run_by(on_ranks(2))]
fn a_group_that_is_added_is_sharded_too(group: &ProcessGroup) {
    let options = AdamOptions { lr: 0.02, ..AdamOptions::adamw() };
    let split = |vs: &VarStore| {
        let (first, rest): (Vec<_>, _) =
            named_parameters(vs).into_iter().partition(|(name, _)| name.starts_with("0."));
        let optimizer = Adam::from_named_parameters(first, AdamOptions::adamw()).unwrap();
        (optimizer, ParamGroup::new(rest, options))
    };
    let job = Job::new(group, &[6, 9, 7, 4], adam, WHOLE);
    let train = |steps: std::ops::Range<i64>, optimizer: &mut dyn Optimizer| {
        for step in steps {
            job.vs.trainable_variables().iter_mut().for_each(Tensor::zero_grad);
            job.model.backward(&job.loss(step)).unwrap();
            optimizer.step().unwrap();
        }
        job.weights()
    };
    let start = job.weights();

    let (mut whole, added) = split(&job.vs);
    train(0..3, &mut whole);
    whole.add_param_group(added).unwrap();
    let expected = train(3..6, &mut whole);

    for (mut parameter, start) in job.vs.trainable_variables().into_iter().zip(&start) {
        tch::no_grad(|| parameter.copy_(start));
    }
    let (sharded, added) = split(&job.vs);
    let mut sharded = ZeroRedundancyOptimizer::new(sharded, group);
    train(0..3, &mut sharded);
    let before: Vec<_> = sharded.share().into_iter().map(str::to_owned).collect();
    sharded.add_param_group(added).unwrap();
    assert_eq!(sharded.share()[..before.len()], before);
    assert_eq!(train(3..6, &mut sharded), expected);
    assert!(sharded.state_bytes() < whole.state_bytes());
    sharded.consolidate_state_dict(0).unwrap();
    if group.rank() == 0 {
        let groups = |optimizer: &dyn Optimizer| optimizer.state_dict().unwrap().param_groups;
        assert_eq!(groups(&sharded), groups(&whole));
    }
}

#[run_by(on_ranks(2))]
fn the_rank_whose_state_cannot_be_gathered_is_named(group: &ProcessGroup) {
    let mut job = Job::new(group, &[6, 4], sgd, SHARDED);
    job.train(0..1);
    if group.rank() == 1 {
        // JSON has no infinity.
        job.optimizer.set_lr(f64::INFINITY);
    }
    let error = message(job.optimizer.consolidate_state_dict(0));
    assert!(error.contains(r#""lr":null"#), "{error}");
    assert_eq!(error.contains("rank 1"), group.rank() == 0, "{error}");
}
