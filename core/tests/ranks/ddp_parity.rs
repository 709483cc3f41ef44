//! Sparse gradients, ignored variables, mixed precision, local steps and averages of models equal Python's to the last
//! bit, on both ranks of a job.

use crate::prelude::*;
use tch_parallel::nn::{LinearOptions, linear};

fn sparse(group: &ProcessGroup, way: &str, saved: &mut Saved) {
    let vs = VarStore::new(Device::Cpu);
    let bag = vs.root().zeros("bag", &[20, 4]);
    let head = linear(vs.root() / "head", 4, 3, LinearOptions::default());
    fill(&vs, group.rank() as i64);
    let options = if way == "hook" { hooked(hooks::AllReduce) } else { DdpOptions::default() };
    let (sparse_gradients, gradient_as_bucket_view) = (["bag".into()].into(), way == "view");
    let options = DdpOptions { sparse_gradients, gradient_as_bucket_view, ..options };
    let model = DistributedDataParallel::with_options((bag, head), &vs, group, options).unwrap();
    for step in 0..3 {
        let indices = Tensor::arange(12, INT64_CPU) * (step + 3);
        let indices = (indices + 5 * group.rank() as i64).remainder(20);
        let offsets = Tensor::arange(4, INT64_CPU) * 3;
        sgd(&vs, 0.0).zero_grad().unwrap();
        let output = model.forward(|(bag, head)| {
            let none = None::<Tensor>;
            let sums = Tensor::embedding_bag(bag, &indices, &offsets, false, 0, true, none, false);
            head.forward_t(&sums.0, true)
        });
        model.backward(&output.unwrap().cross_entropy_for_logits(&labels())).unwrap();
        let name = format!("sparse.{way}.{step}");
        let variables = vs.variables();
        assert!(variables["bag"].grad().is_sparse());
        saved.insert(format!("{name}.bag"), variables["bag"].grad().to_dense(None, false));
        saved.insert(format!("{name}.head"), variables["head.weight"].grad().copy());
    }
}

/// A net that has been filled.
pub fn with_batch_norm(group: &ProcessGroup) -> (VarStore, nn::SequentialT) {
    let vs = VarStore::new(Device::Cpu);
    let p = vs.root();
    let net = nn::seq_t()
        .add(linear(&p / "0", 6, 5, LinearOptions::default()))
        .add(nn::batch_norm1d(&p / "1", 5, Default::default()))
        .add(linear(&p / "2", 5, 3, LinearOptions::default()));
    fill(&vs, group.rank() as i64);
    (vs, net)
}

fn ignored(group: &ProcessGroup, saved: &mut Saved) {
    let (vs, net) = with_batch_norm(group);
    let options = DdpOptions {
        params_and_buffers_to_ignore: ["2.weight".into(), "1.running_mean".into()].into(),
        ..Default::default()
    };
    let model = DistributedDataParallel::with_options(net, &vs, group, options).unwrap();
    let names: Vec<_> = model.named_parameters().into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["0.weight", "0.bias", "1.weight", "1.bias", "2.weight", "2.bias"]);
    for step in 0..2 {
        sgd(&vs, 0.0).zero_grad().unwrap();
        let xs = numbers(&[4, 6], 7 * step + group.rank() as i64);
        let output = model.f_forward_t(&xs, true).unwrap();
        model.backward(&output.cross_entropy_for_logits(&labels())).unwrap();
        let gradients = model.named_parameters().into_iter().map(|(key, it)| (key, it.grad()));
        save(saved, &format!("ignored.{step}.grad"), gradients);
    }
    save(saved, "ignored", vs.variables());
}

/// Pieces of a step whose parameters are bf16 while it computes.
fn mixed(group: &ProcessGroup, reduce_dtype: Kind, saved: &mut Saved) {
    let vs = VarStore::new(Device::Cpu);
    let layer = |i: &str, from, to| linear(vs.root() / i, from, to, Default::default());
    // The second layer is used twice, the last one is frozen.
    let net = (layer("0", 6, 5), layer("1", 5, 5), layer("2", 5, 3));
    fill(&vs, group.rank() as i64);
    let _ = ["2.weight", "2.bias"].map(|name| vs.variables()[name].set_requires_grad(false));
    let mixed_precision = Some(MixedPrecision {
        param_dtype: Some(Kind::BFloat16),
        reduce_dtype: Some(reduce_dtype),
        ..Default::default()
    });
    let bucket_cap_mb = Some(1e-4);
    let options = DdpOptions { bucket_cap_mb, mixed_precision, ..Default::default() };
    let model = DistributedDataParallel::with_options(net, &vs, group, options).unwrap();
    let mut optimizer = sgd(&vs, 0.5);
    for step in 0..5 {
        optimizer.zero_grad().unwrap();
        let xs = numbers(&[4, 6], 7 * step + group.rank() as i64).to_kind(Kind::BFloat16);
        let output = model.forward(|(first, second, last)| {
            [first, second, second, last].iter().fold(xs, |xs, layer| layer.forward_t(&xs, true))
        });
        let output = output.unwrap();
        saved.insert(format!("mixed.{reduce_dtype:?}.{step}.output"), output.detach());
        model.backward(&output.to_kind(Kind::Float).cross_entropy_for_logits(&labels())).unwrap();
        for (name, parameter) in model.named_parameters() {
            assert_eq!(parameter.kind(), Kind::Float);
            if parameter.requires_grad() {
                let gradient = parameter.grad();
                saved.insert(format!("mixed.{reduce_dtype:?}.{step}.grad.{name}"), gradient.copy());
            }
        }
        optimizer.step().unwrap();
    }
    save(saved, &format!("mixed.{reduce_dtype:?}"), model.named_parameters());
}

fn local(group: &ProcessGroup, name: &str, hook: hooks::PostLocalSgd, saved: &mut Saved) {
    let vs = VarStore::new(Device::Cpu);
    let layer = |i: &str, from, to| linear(vs.root() / i, from, to, Default::default());
    let net = nn::seq_t().add(layer("0", 6, 5)).add(layer("1", 5, 3));
    fill(&vs, group.rank() as i64);
    let model = DistributedDataParallel::with_options(net, &vs, group, hooked(hook)).unwrap();
    let averager = || PeriodicModelAverager::new(group, 2, 3).unwrap();
    let wrap = |averager| PostLocalSgdOptimizer::new(sgd(&vs, 0.5), averager);
    let mut optimizer = wrap(averager());
    for step in 0..8 {
        if step == 4 {
            // A resumed training goes on with the same steps.
            let mut resumed = wrap(averager());
            resumed.load_state_dict(&optimizer.state_dict().unwrap()).unwrap();
            optimizer = resumed;
        }
        optimizer.zero_grad().unwrap();
        let xs = numbers(&[4, 6], 7 * step + group.rank() as i64);
        let output = model.f_forward_t(&xs, true).unwrap();
        model.backward(&output.cross_entropy_for_logits(&labels())).unwrap();
        optimizer.step().unwrap();
        save(saved, &format!("local.{name}.{step}"), model.named_parameters());
    }
}

fn averaged(group: &ProcessGroup, averaging: Averaging, use_buffers: bool, saved: &mut Saved) {
    let [(vs, model), (averaged_vs, _averaged)] = [(); 2].map(|()| with_batch_norm(group));
    let options = AveragedModelOptions { averaging, use_buffers };
    let mut average = AveragedModel::new(&averaged_vs, &vs, options).unwrap();
    let mut optimizer = sgd(&vs, 0.5);
    for step in 0..6 {
        optimizer.zero_grad().unwrap();
        let output = model.forward_t(&numbers(&[4, 6], 7 * step), true);
        output.cross_entropy_for_logits(&labels()).backward();
        optimizer.step().unwrap();
        average.update_parameters().unwrap();
    }
    assert_eq!(average.n_averaged(), 6);
    let name = if averaging == Averaging::Swa { "swa" } else { "ema" };
    let python = if use_buffers { "True" } else { "False" };
    save(saved, &format!("averaged.{name}.{python}"), averaged_vs.variables());
}

#[run_by(after_python((2, SHARED_MEMORY), "ddp_options", ""))]
fn sparse_gradients_ignored_variables_mixed_precision_local_steps_and_averages_equal_pythons(
    group: &ProcessGroup,
    python: Saved,
) {
    let mut saved = Saved::new();
    ["plain", "view", "hook"].into_iter().for_each(|way| sparse(group, way, &mut saved));
    ignored(group, &mut saved);
    [Kind::BFloat16, Kind::Float].into_iter().for_each(|kind| mixed(group, kind, &mut saved));
    let alone = hooks::PostLocalSgd::without_post_local_gradient_allreduce(3);
    local(group, "alone", alone, &mut saved);
    let both = group.new_group(&[0, 1]).unwrap().unwrap();
    local(group, "together", hooks::PostLocalSgd::new(both, 3), &mut saved);
    for use_buffers in [false, true] {
        averaged(group, Averaging::Swa, use_buffers, &mut saved);
        averaged(group, Averaging::Ema { decay: 0.9 }, use_buffers, &mut saved);
    }
    expect_equal(saved, python);
}

#[run_by(on_ranks(2))]
fn a_sparse_gradient_that_is_not_expected_is_named(group: &ProcessGroup) {
    let (_vs, model) = ddp(group, DdpOptions::default(), |path| path.zeros("table", &[5, 2]));
    let indices = Tensor::from_slice(&[1i64, 3]);
    let output = model.forward(|table| Tensor::embedding(table, &indices, -1, false, true));
    let expected = "the gradient of table is sparse: name it in DdpOptions::sparse_gradients";
    expect_error(model.backward(&output.unwrap().sum(Kind::Float)), expected);
}

#[run_by(on_ranks(1))]
fn options_that_name_what_is_not_there_are_refused(group: &ProcessGroup) {
    let vs = VarStore::new(Device::Cpu);
    let names = || ["tabel".to_owned()].into();
    let sparse = DdpOptions { sparse_gradients: names(), ..Default::default() };
    let ignored = DdpOptions { params_and_buffers_to_ignore: names(), ..Default::default() };
    for (option, ddp) in [("sparse_gradients", sparse), ("params_and_buffers_to_ignore", ignored)] {
        let table = vs.root().entry("table").or_zeros(&[5, 2]);
        let error = message(DistributedDataParallel::with_options(table, &vs, group, ddp));
        assert!(error.contains(option) && error.contains("\"tabel\""), "{error}");
    }
}
