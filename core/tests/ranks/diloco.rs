//! Ranks that make their own steps and exchange what they have learned: torchft's numbers, and its rules.

use crate::prelude::*;

/// The model of torchft's regression test: two layers of a single weight, which is 1 at first.
fn two_weights() -> VarStore {
    let vs = VarStore::new(Device::Cpu);
    let _ = ["0", "1"].map(|layer| (vs.root() / "layers" / layer).ones("weight", &[1, 1]));
    vs
}

fn sgd(lr: f64) -> SgdOptions {
    SgdOptions { lr, ..Default::default() }
}

/// Its optimizers, with one fragment for each layer.
fn diloco(vs: &VarStore, group: &ProcessGroup, delay: u64, alpha: f64) -> DiLoCo<Sgd> {
    let options = DiLoCoOptions { outer: sgd(2.0), ..DiLoCoOptions::new(6) };
    let options =
        DiLoCoOptions { fragment_sync_delay: delay, fragment_update_alpha: alpha, ..options };
    let inner = Sgd::new(vs, sgd(1.0)).unwrap();
    DiLoCo::new(inner, model_fragments(vs, 2).unwrap(), group, options).unwrap()
}

fn step(vs: &VarStore, optimizer: &mut dyn Optimizer, gradient: f64) {
    optimizer.zero_grad().unwrap();
    vs.trainable_variables().iter().for_each(|it| (it * gradient).sum(Kind::Float).backward());
    optimizer.step().unwrap();
}

fn weights(tensors: &[Tensor]) -> [f64; 2] {
    [0, 1].map(|layer| tensors[layer].double_value(&[0, 0]))
}

/// The weights of both layers before each of 16 steps, and the global ones before every third.
type History = ([[f64; 16]; 2], [[f64; 5]; 2]);

/// torchft's fixtures `test_diloco_mocked_updates_0` to `_5`, which are the same for both of its replicas.
#[rustfmt::skip]
const FIXTURES: [(u64, f64, History); 6] = [
    (0, 0.0, (
        [[1.0, -1.0, -3.0, -11.0, -13.0, -15.0, -17.0, -19.0, -21.0, -35.0, -37.0, -39.0, -41.0, -43.0, -45.0, -59.0],
         [1.0, -1.0, -3.0, -5.0, -7.0, -9.0, -23.0, -25.0, -27.0, -29.0, -31.0, -33.0, -47.0, -49.0, -51.0, -53.0]],
        [[1.0, -11.0, -11.0, -35.0, -35.0], [1.0, 1.0, -23.0, -23.0, -47.0]])),
    (0, 0.5, (
        [[1.0, -1.0, -3.0, -8.0, -10.0, -12.0, -14.0, -16.0, -18.0, -24.5, -26.5, -28.5, -30.5, -32.5, -34.5, -40.25],
         [1.0, -1.0, -3.0, -5.0, -7.0, -9.0, -17.0, -19.0, -21.0, -23.0, -25.0, -27.0, -32.0, -34.0, -36.0, -38.0]],
        [[1.0, -11.0, -11.0, -29.0, -29.0], [1.0, 1.0, -23.0, -23.0, -35.0]])),
    (0, 1.0, (
        [[1.0, -1.0, -3.0, -5.0, -7.0, -9.0, -11.0, -13.0, -15.0, -17.0, -19.0, -21.0, -23.0, -25.0, -27.0, -29.0]; 2],
        [[1.0, -11.0, -11.0, -23.0, -23.0], [1.0, 1.0, -23.0, -23.0, -23.0]])),
    (1, 0.0, (
        [[1.0, -1.0, -3.0, -7.0, -9.0, -11.0, -13.0, -15.0, -17.0, -27.0, -29.0, -31.0, -33.0, -35.0, -37.0, -47.0],
         [1.0, -1.0, -3.0, -5.0, -7.0, -9.0, -19.0, -21.0, -23.0, -25.0, -27.0, -29.0, -39.0, -41.0, -43.0, -45.0]],
        [[1.0, -7.0, -7.0, -27.0, -27.0], [1.0, 1.0, -19.0, -19.0, -39.0]])),
    (1, 0.5, (
        [[1.0, -1.0, -3.0, -6.0, -8.0, -10.0, -12.0, -14.0, -16.0, -21.5, -23.5, -25.5, -27.5, -29.5, -31.5, -35.75],
         [1.0, -1.0, -3.0, -5.0, -7.0, -9.0, -15.0, -17.0, -19.0, -21.0, -23.0, -25.0, -29.0, -31.0, -33.0, -35.0]],
        [[1.0, -7.0, -7.0, -25.0, -25.0], [1.0, 1.0, -19.0, -19.0, -31.0]])),
    (1, 1.0, (
        [[1.0, -1.0, -3.0, -5.0, -7.0, -9.0, -11.0, -13.0, -15.0, -17.0, -19.0, -21.0, -23.0, -25.0, -27.0, -29.0]; 2],
        [[1.0, -7.0, -7.0, -23.0, -23.0], [1.0, 1.0, -19.0, -19.0, -23.0]])),
];

/// `test_diloco_mocked_failure_recovery_0`: after the first 16 steps of the first fixture, its replica 0 goes on with
/// these; replica 1, which has been replaced, has the weights from step 9 on too.
const AFTER_RECOVERY: [[f64; 6]; 2] =
    [[-61.0, -63.0, -65.0, -67.0, -69.0, -83.0], [-55.0, -57.0, -71.0, -73.0, -75.0, -77.0]];

/// torchft's gradients are 2 on both ranks. Here they are also 1 and 3, and everything is linear: the global weights
/// are the fixture's only if the ranks exchange theirs, and so is the mean of their own weights.
#[run_by(on_ranks(2))]
fn the_weights_of_two_ranks_are_those_of_torchfts_fixtures(group: &ProcessGroup) {
    for (delay, alpha, (local, global)) in FIXTURES {
        for spread in [0.0, 1.0] {
            let vs = two_weights();
            // Unless all ranks begin with those of rank 0, the means are others.
            let _ = no_grad(|| vs.trainable_variables()[1].fill_(1.0 + group.rank() as f64));
            let mut optimizer = diloco(&vs, group, delay, alpha);
            for number in 0..16 {
                let mut mean = Tensor::from_slice(&weights(&vs.trainable_variables()));
                group.all_reduce(&mut mean, ReduceOp::Avg).unwrap();
                let at = format!("delay {delay}, alpha {alpha}, spread {spread}, step {number}");
                assert_eq!(values(&mean), local.map(|layer| layer[number]), "{at}");
                if number % 3 == 0 && number < 15 {
                    let globals = weights(&optimizer.outer_mut().parameters());
                    assert_eq!(globals, global.map(|layer| layer[number / 3]), "{at}");
                }
                step(&vs, &mut optimizer, [2.0 - spread, 2.0 + spread][group.rank()]);
            }
        }
    }
}

/// As in torchft's fixture: it begins with fresh weights and gets those of the other, and its optimizer's state.
#[run_by(on_ranks(2))]
fn a_rank_that_is_replaced_goes_on_with_the_others_numbers(group: &ProcessGroup) {
    let path = "training.safetensors";
    let [mut vs, new] = [(); 2].map(|()| two_weights());
    let mut optimizer = diloco(&vs, group, 0, 0.0);
    (0..9).for_each(|_| step(&vs, &mut optimizer, 2.0));
    training(&mut vs, &mut optimizer).save(path, &9, group).unwrap();
    if group.rank() == 1 {
        vs = new;
    }
    let mut optimizer = diloco(&vs, group, 0, 0.0);
    let _ = training(&mut vs, &mut optimizer).load::<i64>(path, group).unwrap();
    let (_, _, (local, _)) = FIXTURES[0];
    for number in 9..22 {
        let expected = [0, 1].map(|i| [&local[i][..], &AFTER_RECOVERY[i]].concat()[number]);
        assert_eq!(weights(&vs.trainable_variables()), expected, "step {number}");
        step(&vs, &mut optimizer, 2.0);
    }
}

/// A model whose training, in which all ranks have the same data, depends on everything in the state.
fn job(group: &ProcessGroup) -> (VarStore, nn::Linear, DiLoCo<Adam>) {
    tch::manual_seed(3);
    let vs = VarStore::new(Device::Cpu);
    let model = nn::linear(vs.root() / "fc", 4, 3, Default::default());
    let options = DiLoCoOptions { fragment_sync_delay: 1, ..DiLoCoOptions::new(6) };
    let options = DiLoCoOptions { fragment_update_alpha: 0.25, ..options };
    let adam = Adam::new(&vs, AdamOptions::adamw()).unwrap();
    let optimizer = DiLoCo::new(adam, model_fragments(&vs, 2).unwrap(), group, options).unwrap();
    (vs, model, optimizer)
}

fn train(model: &nn::Linear, optimizer: &mut dyn Optimizer, data: i64) {
    optimizer.zero_grad().unwrap();
    numbers(&[5, 4], data).apply(model).square().mean(Kind::Float).backward();
    optimizer.step().unwrap();
}

#[run_by(on_ranks(2))]
fn a_training_saved_while_a_fragment_is_underway_resumes_to_the_last_bit(group: &ProcessGroup) {
    let path = "training.safetensors";
    let (mut vs, model, mut optimizer) = job(group);
    (0..11).for_each(|data| train(&model, &mut optimizer, data));
    expect_error_start(optimizer.state_dict(), "a fragment is underway between the ranks");
    training(&mut vs, &mut optimizer).save(path, &11, group).unwrap();
    (11..20).for_each(|data| train(&model, &mut optimizer, data));
    let (mut resumed, model, mut optimizer) = job(group);
    let _ = training(&mut resumed, &mut optimizer).load::<i64>(path, group).unwrap();
    (11..20).for_each(|data| train(&model, &mut optimizer, data));
    assert_eq!(resumed.trainable_variables(), vs.trainable_variables());
    assert_ne!(resumed.trainable_variables(), job(group).0.trainable_variables());
}

/// Up to rounding: one adds the mean difference, the other takes the mean.
#[run_by(on_ranks(2))]
fn an_outer_sgd_of_rate_1_is_local_sgd(group: &ProcessGroup) {
    let [local, global] = [true, false].map(|is_local| {
        tch::manual_seed(3);
        let vs = VarStore::new(Device::Cpu);
        let model = nn::linear(vs.root() / "fc", 4, 3, Default::default());
        let inner = Sgd::new(&vs, sgd(0.1)).unwrap();
        let mut optimizer: Box<dyn Optimizer> = if is_local {
            let averager = PeriodicModelAverager::new(group, 4, 3).unwrap();
            Box::new(PostLocalSgdOptimizer::new(inner, averager))
        } else {
            let options = DiLoCoOptions { outer: sgd(1.0), ..DiLoCoOptions::new(4) };
            Box::new(DiLoCo::new(inner, vec![named_parameters(&vs)], group, options).unwrap())
        };
        let first = 100 * group.rank() as i64;
        (first..first + 10).for_each(|data| train(&model, &mut optimizer, data));
        vs.trainable_variables()
    });
    for (local, global) in local.iter().zip(&global) {
        assert!((local - global).abs().max().double_value(&[]) < 1e-6, "{local} {global}");
    }
}

#[run_by(on_ranks(4))]
fn an_average_of_neighbours_is_due_more_often_than_that_of_all(group: &ProcessGroup) {
    let mut averager = PeriodicModelAverager::hierarchical(group, &[(2, 2), (4, 4)], 3).unwrap();
    let own = group.rank() as f64;
    let parameter = Tensor::zeros([1], FLOAT_CPU).set_requires_grad(true);
    (&parameter * 1.0).sum(Kind::Float).backward();
    let after = [(); 9].map(|()| {
        let _ = no_grad(|| parameter.shallow_clone().fill_(own));
        averager.average_parameters(&[parameter.shallow_clone()]).unwrap();
        parameter.double_value(&[0])
    });
    let pair = if own < 2.0 { 0.5 } else { 2.5 };
    assert_eq!(after, [own, own, own, own, 1.5, own, pair, own, 1.5]);
    let expected = "levels is [(2, 2)], but must be a list whose last level has all 4 ranks";
    expect_error(PeriodicModelAverager::hierarchical(group, &[(2, 2)], 0), expected);
    let tensor = Tensor::from(own as f32);
    average_parameters(&[tensor.shallow_clone()], group).unwrap();
    assert_eq!(f32::try_from(tensor).unwrap(), 1.5);
}

#[test]
fn what_does_not_fit_together_is_refused() {
    let group = ProcessGroup::from_env().unwrap();
    let vs = two_weights();
    let new = |fragments, options| {
        message(DiLoCo::new(Sgd::new(&vs, sgd(1.0)).unwrap(), fragments, &group, options))
    };
    let halves = || model_fragments(&vs, 2).unwrap();
    let every = DiLoCoOptions::new;
    let first = || halves().remove(0);
    let (five, zero) = (new(halves(), every(5)), new(halves(), every(0)));
    let late = DiLoCoOptions { fragment_sync_delay: 3, ..every(6) };
    let mut optimizer = diloco(&vs, &group, 0, 0.0);
    let other = Sgd::new(&vs, sgd(1.0)).unwrap().state_dict().unwrap();
    (0..2).for_each(|_| step(&vs, &mut optimizer, 2.0));
    let within = optimizer.state_dict().unwrap();
    let within = message(diloco(&vs, &group, 1, 0.0).load_state_dict(&within));
    for (found, expected) in [
        (within, "other fragments underway after 2 steps"),
        (five, "sync_every is 5, but must be a multiple of the number of fragments"),
        (zero, "sync_every is 0, but must be a multiple of the number of fragments"),
        (new(halves(), late), "3, but must be below 3"),
        (new(halves(), DiLoCoOptions { fragment_update_alpha: 1.5, ..every(6) }), "from 0 to 1"),
        (new(vec![], every(6)), "fragments is empty"),
        (new(vec![first(), vec![]], every(6)), "fragments is empty"),
        (new(vec![first(), first()], every(6)), "layers.0.weight for a second parameter"),
        (message(model_fragments(&vs, 3)), "the number of fragments is 3, but must be from 1 to 2"),
        (message(optimizer.load_state_dict(&other)), "load any other before `DiLoCo::new`"),
    ] {
        assert!(found.contains(expected), "{found}");
    }
}

#[test]
fn fragments_are_of_similar_size_and_keep_the_order() {
    let vs = VarStore::new(Device::Cpu);
    let sizes = [("a", 10), ("b", 1), ("c", 6), ("d", 5), ("e", 30), ("f", 2)];
    let _ = sizes.map(|(name, size)| vs.root().zeros(name, &[size]));
    let names = |count| {
        let fragments = model_fragments(&vs, count).unwrap().into_iter();
        let joined = |fragment: Vec<_>| fragment.into_iter().map(|(name, _)| name).collect();
        fragments.map(joined).collect::<Vec<String>>()
    };
    assert_eq!(names(1), ["abcdef"]);
    assert_eq!(names(2), ["abcd", "ef"]);
    assert_eq!(names(3), ["abc", "d", "ef"]);
    assert_eq!(names(6), ["a", "b", "c", "d", "e", "f"]);
}
