//! The files of a sharded model are those of the whole model, whatever the number of ranks.

use crate::{common::read, fully_shard_twins::shard, prelude::*};

const BLOCKS: usize = 8;
const WIDTH: i64 = 50;

/// Layers with weights of 50 × 50, and a head with fewer rows than some jobs have ranks.
fn net<B>(root: &nn::Path<'_>, block: impl Fn(nn::Path<'_>) -> B) -> nn::SequentialT
where
    B: ModuleT + 'static,
{
    let add = |net: nn::SequentialT, i: usize| {
        let net = net.add(block(root / "blocks" / i)).add_fn(|xs| xs.tanh());
        net.add_fn_t(|xs, train| xs.dropout(0.2, train))
    };
    let blocks = (0..BLOCKS).fold(nn::seq_t(), add);
    blocks.add(nn::linear(root / "head", WIDTH, 2, Default::default()))
}

fn linear(path: &nn::Path<'_>) -> nn::Linear {
    nn::linear(path, WIDTH, WIDTH, Default::default())
}

/// A training whose weights and random numbers depend on the seed.
struct Job {
    vs: VarStore,
    model: FsdpModule<nn::SequentialT>,
    optimizer: Adam,
    group: ProcessGroup,
}

impl Job {
    fn new(group: &ProcessGroup, seed: i64) -> Job {
        tch::manual_seed(seed);
        let (vs, model) = shard(group, Default::default(), |root, sharding| {
            net(root, |path| sharding.shard(path, linear))
        });
        let optimizer = Adam::new(&vs, AdamOptions { lr: 0.01, ..AdamOptions::adamw() }).unwrap();
        tch::manual_seed(seed + group.rank() as i64);
        Job { vs, model, optimizer, group: group.clone() }
    }

    fn train(&mut self, steps: std::ops::Range<i64>) {
        for step in steps {
            let offset = step * 7 + self.group.rank() as i64;
            let xs = Tensor::arange(3 * WIDTH, FLOAT_CPU) + offset;
            let loss = self.model.forward_t(&xs.sin().view([3, WIDTH]), true);
            self.optimizer.zero_grad().unwrap();
            self.model.backward(&loss.square().mean(Kind::Float)).unwrap();
            self.optimizer.step().unwrap();
        }
    }

    fn state(&self) -> (Vec<Tensor>, OptimizerState) {
        (self.vs.trainable_variables(), self.optimizer.state_dict().unwrap())
    }

    fn parts(&mut self) -> Training<'_> {
        training(&mut self.vs, &mut self.optimizer)
    }
}

/// The tensors of a file, without those of the generators, which differ with the number of ranks.
fn contents(path: &str) -> Saved {
    let mut tensors = read(path);
    tensors.retain(|name, _| !name.starts_with("rng."));
    tensors
}

#[run_by(on_ranks(3))]
fn a_resumed_training_takes_the_course_of_an_uninterrupted_one(group: &ProcessGroup) {
    for name in ["training.safetensors", "training.index.json"] {
        let mut whole = Job::new(group, 1);
        whole.train(0..3);
        whole.parts().save(name, &3, group).unwrap();
        whole.train(3..6);
        // With another seed, anything that is not loaded shows up.
        let mut resumed = Job::new(group, 100);
        let found = resumed.parts().load::<i64>(name, group).unwrap();
        assert_eq!((found.progress, found.generators), (3, Generators::Restored));
        resumed.train(3..6);
        assert_eq!(resumed.state(), whole.state(), "{name}");
    }
}

#[run_by(on_ranks(2))]
fn a_checkpoint_in_parts_has_one_complete_version_of_them(group: &ProcessGroup) {
    let path = "model.index.json";
    let mut job = Job::new(group, 1);
    let names = || {
        group.barrier().unwrap();
        let files = fs::read_dir(".").unwrap();
        let mut names: Vec<_> = files.map(|it| it.unwrap().file_name()).collect();
        names.sort();
        group.barrier().unwrap();
        names
    };
    let parts = |version| [1, 2].map(|it| format!("model-{version}-0000{it}-of-00002.safetensors"));
    // Not parts of this checkpoint.
    let others = ["model-2024-05-17.safetensors", "other-0-00001-of-00002.safetensors"];
    others.iter().for_each(|name| fs::write(name, "").unwrap());
    for version in 0..3 {
        job.train(0..1);
        // What a killed save of four ranks has left.
        fs::write(".model-0-00003-of-00004.safetensors.1.tmp", "").unwrap();
        checkpoint::save(path, &job.vs, group).unwrap();
        let [one, two] = parts(version);
        assert_eq!(names(), [&one, &two, others[0], "model.index.json", others[1]]);
    }
    let whole = job.model.full_state_dict().unwrap();
    // The store still knows that it holds shards.
    drop(job.model);
    checkpoint::save(path, &job.vs, group).unwrap();
    let mut plain = VarStore::new(Device::Cpu);
    let _net = net(&plain.root(), |path| linear(&path));
    checkpoint::load(path, &mut plain).unwrap();
    assert_eq!(plain.variables(), whole);
    let index = fs::read_to_string(path).unwrap();
    for (name, found) in [("missing.safetensors", "No such file"), ("../m", "lie beside it")] {
        let own = format!("{}.index.json", group.rank());
        fs::write(&own, index.replace(&parts(3)[1], name)).unwrap();
        let error = checkpoint::load(&own, &mut plain).unwrap_err();
        assert!(format!("{:#}", anyhow::Error::from(error)).contains(found), "{name}");
    }
}

#[run_by(on_ranks(3))]
fn any_number_of_ranks_loads_what_another_has_saved(group: &ProcessGroup) {
    for end in ["safetensors", "index.json"] {
        let path = |name: &str| format!("{name}.{end}");
        let mut three = Job::new(group, 1);
        three.train(0..2);
        three.parts().save(path("three"), &2, group).unwrap();
        if let Some(pair) = group.new_group(&[0, 1]).unwrap() {
            let mut two = Job::new(&pair, 100);
            let found = two.parts().load::<i64>(path("three"), &pair).unwrap();
            assert_eq!(found.generators, Generators::OtherWorldSize { saved: 3 });
            two.parts().save(path("two"), &2, &pair).unwrap();
            if end == "safetensors" {
                assert_eq!(contents(&path("three")), contents(&path("two")));
            }
            two.train(2..3);
        }
        group.barrier().unwrap();
        let mut again = Job::new(group, 200);
        let _ = again.parts().load::<i64>(path("two"), group).unwrap();
        assert_eq!(again.state(), three.state(), "{end}");
    }
}

#[run_by(on_ranks(2))]
fn the_file_is_that_of_the_whole_model_in_both_formats(group: &ProcessGroup) {
    let mut sharded = Job::new(group, 1);
    tch::manual_seed(1);
    let mut vs = VarStore::new(Device::Cpu);
    let _whole = net(&vs.root(), |path| linear(&path));
    for end in ["safetensors", "pt"] {
        let [one, other] = ["sharded", "whole"].map(|it| format!("{it}.{end}"));
        checkpoint::save(&one, &sharded.vs, group).unwrap();
        checkpoint::save(&other, &vs, group).unwrap();
        assert!(fs::read(&one).unwrap() == fs::read(&other).unwrap(), "{end}");
        let mut another = Job::new(group, 2);
        assert_ne!(another.vs.trainable_variables(), sharded.vs.trainable_variables());
        checkpoint::load(&other, &mut another.vs).unwrap();
        assert_eq!(another.vs.trainable_variables(), sharded.vs.trainable_variables());
    }
    // Names as Python's wrappers write them.
    let prefixed = "prefixed.safetensors";
    let names = vs.variables().into_iter().map(|(name, it)| (format!("module.{name}"), it));
    if group.rank() == 0 {
        Tensor::write_safetensors(&names.collect::<Vec<_>>(), prefixed).unwrap();
    }
    group.barrier().unwrap();
    checkpoint::load(prefixed, &mut sharded.vs).unwrap();
    vs.load("sharded.safetensors").unwrap();
}

#[run_by(on_ranks(4))]
fn each_copy_of_hybrid_sharding_loads_what_the_first_has_saved(group: &ProcessGroup) {
    let hybrid = |seed| {
        tch::manual_seed(seed);
        let vs = VarStore::new(Device::Cpu);
        let mesh = DeviceMesh::new(group, &[("replicate", 2), ("shard", 2)]).unwrap();
        let sharding = FullyShard::with_mesh(&vs, &mesh, FullyShardOptions::default()).unwrap();
        let model = sharding.root(|root| net(root, |path| sharding.shard(path, linear)));
        (model.unwrap(), vs)
    };
    let (saved, vs) = hybrid(1);
    for name in ["model.safetensors", "model.index.json"] {
        checkpoint::save(name, &vs, group).unwrap();
        let (loaded, mut vs) = hybrid(2);
        checkpoint::load(name, &mut vs).unwrap();
        assert_eq!(loaded.full_state_dict().unwrap(), saved.full_state_dict().unwrap());
        let mut four = Job::new(group, 3);
        checkpoint::load(name, &mut four.vs).unwrap();
        assert_eq!(four.model.full_state_dict().unwrap(), saved.full_state_dict().unwrap());
    }
    let mesh = DeviceMesh::new(group, &[("x", 2), ("y", 1), ("z", 2)]).unwrap();
    let sharding = FullyShard::with_mesh(&vs, &mesh, FullyShardOptions::default());
    expect_error_start(sharding, "mesh is of 3 dimensions, but must be");
    // Rank 0 serves the store, which the others may still need to make their groups.
    group.barrier().unwrap();
}

#[run_by(on_ranks(2))]
fn no_rank_has_the_whole_model_in_memory(group: &ProcessGroup) {
    let path = "model.safetensors";
    let mut job = Job::new(group, 1);
    let device = LogicalDevice::Cpu(0);
    let layer = 4 * (WIDTH * WIDTH) as usize;
    let mut more_than = |work: &mut dyn FnMut(&mut VarStore)| {
        reset_peak_memory_stats(device).unwrap();
        let before = memory_allocated(device).unwrap();
        work(&mut job.vs);
        max_memory_allocated(device).unwrap() - before
    };
    let saving = more_than(&mut |vs| checkpoint::save(path, vs, group).unwrap());
    assert!(saving < 4 * layer, "{saving} bytes to save layers of {layer}");
    // Its own rows.
    let loading = more_than(&mut |vs| checkpoint::load(path, vs).unwrap());
    assert!(loading < BLOCKS * layer * 3 / 4, "{loading} bytes to load layers of {layer}");
}

#[run_by(on_ranks(2))]
fn if_rank_0_cannot_write_all_are_told_and_can_go_on(group: &ProcessGroup) {
    let mut job = Job::new(group, 1);
    let nowhere = "missing/training.safetensors";
    expect_error(job.parts().save(nowhere, &0, group), "missing");
    let unreadable = job.parts().save(nowhere, &f64::NAN, group);
    expect_error(unreadable, "progress is not readable after writing");
    expect_error(checkpoint::save(nowhere, &job.vs, group), "missing");
    let other = group.new_group(&[0, 1]).unwrap().unwrap();
    let saved = checkpoint::save(nowhere, &job.vs, &other);
    expect_error(saved, "group is another than the one over which FullyShard");

    let path = "training.safetensors";
    job.parts().save(path, &0, group).unwrap();
    let narrow = |path: &nn::Path<'_>| nn::linear(path, WIDTH, WIDTH - 2, Default::default());
    let (mut narrower, _model) = shard(group, Default::default(), |root, sharding| {
        net(root, |path| sharding.shard(path, narrow))
    });
    let expected = "blocks.0.bias has the shape [50]; expected [48], as in the model";
    expect_error(checkpoint::load(path, &mut narrower), expected);
    // What is as large as a shard is not taken for one.
    let one_ranks = "shards.safetensors";
    if group.rank() == 0 {
        job.vs.save(one_ranks).unwrap();
    }
    group.barrier().unwrap();
    let loaded = checkpoint::load(one_ranks, &mut job.vs);
    expect_error(loaded, "blocks.0.bias has the shape [25]; expected [50]");
}
