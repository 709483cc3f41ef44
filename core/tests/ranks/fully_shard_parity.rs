//! A model that is sharded has the bits of Python's `fully_shard`: losses, shards of gradients, weights.

use crate::prelude::*;

const BLOCKS: usize = 3;

/// The values of a parameter with this name, as in Python.
fn parameter(path: &nn::Path<'_>, name: &str, size: &[i64]) -> Tensor {
    let offset: i64 = path.path(name).bytes().map(i64::from).sum();
    path.var_copy(name, &(numbers(size, offset) * 0.5))
}

fn linear(path: nn::Path<'_>, inputs: i64, outputs: i64) -> nn::Linear {
    // In the order of tch's layer, which is not PyTorch's.
    let bs = Some(parameter(&path, "bias", &[outputs]));
    nn::Linear { ws: parameter(&path, "weight", &[outputs, inputs]), bs }
}

/// Its own parameter has fewer rows than there are ranks, and PyTorch's order puts it last.
#[derive(Debug)]
struct Block {
    gain: Tensor,
    up: nn::Linear,
    down: nn::Linear,
}

impl Block {
    fn new(path: &nn::Path<'_>) -> Self {
        let gain = parameter(path, "gain", &[1]);
        Block { gain, up: linear(path / "up", 6, 11), down: linear(path / "down", 11, 6) }
    }
}

impl ModuleT for Block {
    fn forward_t(&self, xs: &Tensor, _train: bool) -> Tensor {
        xs + self.down.forward(&self.up.forward(xs).tanh()) * &self.gain
    }
}

#[derive(Debug)]
struct Net {
    position: Tensor,
    blocks: Vec<FsdpModule<nn::SequentialT>>,
    head: nn::Linear,
    twice: bool,
}

impl ModuleT for Net {
    fn forward_t(&self, xs: &Tensor, train: bool) -> Tensor {
        let blocks = self.blocks.iter().chain(self.blocks.first().filter(|_| self.twice));
        let xs = blocks.fold(xs + &self.position, |xs, block| block.forward_t(&xs, train));
        self.head.forward(&xs)
    }
}

/// A training whose options are the words of `way`.
fn train(way: &str, group: &ProcessGroup, saved: &mut Saved) {
    let has = |word: &str| way.split('-').any(|each| each == word);
    let vs = VarStore::new(Device::Cpu);
    let ranks = way.split('-').find_map(|word| word.parse::<usize>().ok());
    let reshard_after_forward = match ranks {
        Some(ranks) => ranks.into(),
        None if has("reshard") => true.into(),
        None if has("keep") => false.into(),
        None => ReshardAfterForward::default(),
    };
    let half = has("f16").then_some(Kind::Half);
    let mp_policy = MixedPrecisionPolicy {
        param_dtype: has("bf16").then_some(Kind::BFloat16).or(half),
        reduce_dtype: has("reduce32").then_some(Kind::Float),
        ..Default::default()
    };
    let options = FullyShardOptions { reshard_after_forward, mp_policy, ..Default::default() };
    let output_dtype = has("output32").then_some(Kind::Float);
    let mp_policy = MixedPrecisionPolicy { output_dtype, ..mp_policy };
    let of_the_root = FullyShardOptions { mp_policy, ..options.clone() };
    let sharding = if has("hybrid") {
        let dims = [("replicate", 2), ("shard", group.world_size() / 2)];
        FullyShard::with_mesh(&vs, &DeviceMesh::new(group, &dims).unwrap(), options).unwrap()
    } else {
        FullyShard::new(&vs, group, options)
    };
    let model = sharding.with(of_the_root).root(|root| {
        let position = parameter(root, "position", &[6]);
        let layer = |path: &nn::Path<'_>| match has("checkpoint") {
            true => nn::seq_t().add(CheckpointWrapper::new(Block::new(path))),
            false => nn::seq_t().add(Block::new(path)),
        };
        let block = |i| sharding.shard(root / "blocks" / i, layer);
        let blocks = (0..BLOCKS).map(block).collect();
        let head = linear(root / "head", 6, 3);
        Net { position, blocks, head, twice: has("twice") }
    });
    let model = model.unwrap();
    let mut optimizer: Box<dyn Optimizer> = if has("adamw") {
        Box::new(Adam::new(&vs, AdamOptions { lr: 0.05, ..AdamOptions::adamw() }).unwrap())
    } else {
        Box::new(sgd(&vs, 0.1))
    };
    let loss_of = |offset| {
        let output = model.f_forward_t(&numbers(&[4, 6], offset), true).unwrap();
        output.cross_entropy_for_logits(&labels())
    };
    for step in 0..4 {
        let offset = 7 * step + group.rank() as i64;
        let loss = loss_of(offset);
        optimizer.zero_grad().unwrap();
        model.set_requires_gradient_sync(!has("nosync"));
        model.backward(&loss).unwrap();
        model.set_requires_gradient_sync(true);
        if has("accumulate") || has("nosync") {
            model.backward(&loss_of(offset + 3)).unwrap();
        }
        let name = |what: &str| format!("{way}.{step}.{what}");
        saved.insert(name("loss"), loss.detach());
        let gradients = || vs.variables().into_iter().map(|(name, shard)| (name, shard.grad()));
        save(saved, &name("grad"), gradients());
        if has("clip") {
            // In the order of Python's model.parameters(): each weight before its bias.
            let mut parameters = vs.trainable_variables();
            for i in 1..parameters.len() {
                if parameters[i].dim() == 2 {
                    parameters.swap(i - 1, i);
                }
            }
            let norm = clip_grad_norm_(&parameters, 0.1).unwrap();
            saved.insert(name("norm"), Tensor::from(norm as f32));
            let norm_of = |norm_type| {
                let options = ClipGradNormOptions { norm_type, ..f64::INFINITY.into() };
                clip_grad_norm_(&parameters, options).unwrap()
            };
            for norm_type in [0.0, 1.0, 3.0] {
                let norm = Tensor::from(norm_of(norm_type) as f32);
                saved.insert(name(&format!("norm{norm_type}")), norm);
            }
            if has("mixed") {
                let options = ClipGradNormOptions { norm_type: f64::INFINITY, ..0.1.into() };
                expect_error(clip_grad_norm_(&parameters, options), "which runs Python");
            } else {
                // Python fails if a rank has no elements of a gradient.
                let gradients = parameters.iter().map(|shard| shard.grad().flatten(0, -1));
                let mut largest = Tensor::cat(&gradients.collect::<Vec<_>>(), 0).abs().max();
                group.all_reduce(&mut largest, ReduceOp::Max).unwrap();
                assert_eq!(norm_of(f64::INFINITY), largest.double_value(&[]));
            }
            save(saved, &name("clipped"), gradients());
        }
        optimizer.step().unwrap();
        if has("evaluate") {
            saved.insert(name("evaluated"), no_grad(|| loss_of(offset)));
        }
    }
    if has("mixed") {
        // Python would gather the weights in another order.
        return;
    }
    save(saved, way, model.full_state_dict().unwrap());
}

fn expect_pythons_bits(group: &ProcessGroup, ways: &str, python: Saved) {
    let mut saved = Saved::new();
    ways.split(' ').for_each(|way| train(way, group, &mut saved));
    // A rank without rows of a parameter has an empty shard, which Python does not save.
    saved.retain(|_, tensor| tensor.numel() > 0);
    expect_equal(saved, python);
}

const ON_TWO: &str = "sgd adamw-reshard sgd-keep sgd-accumulate sgd-nosync adamw-twice sgd-evaluate \
    adamw-keep-twice-evaluate sgd-clip adamw-bf16-reduce32-output32 \
    sgd-bf16-output32-nosync-clip sgd-checkpoint-accumulate adamw-checkpoint-keep-evaluate";

#[run_by(after_python((2, SHARED_MEMORY), "fully_shard", ON_TWO))]
fn on_two_ranks_all_ways_have_pythons_bits(group: &ProcessGroup, python: Saved) {
    expect_pythons_bits(group, ON_TWO, python);
}

const ON_THREE: &str = "sgd-evaluate adamw-keep-accumulate sgd-reshard-nosync sgd-twice adamw-clip \
    sgd-bf16-reduce32-output32-nosync sgd-checkpoint sgd-f16-output32";

#[run_by(after_python((3, SHARED_MEMORY), "fully_shard", ON_THREE))]
fn on_three_ranks_all_ways_have_pythons_bits(group: &ProcessGroup, python: Saved) {
    expect_pythons_bits(group, ON_THREE, python);
}

const ON_FOUR: &str = "adamw adamw-hybrid-evaluate sgd-hybrid-clip-accumulate sgd-hybrid-nosync-twice \
    sgd-hybrid-f16-output32 sgd-1 adamw-2-evaluate sgd-2-twice-accumulate \
    sgd-2-checkpoint-nosync-bf16-reduce32-output32 sgd-hybrid-2-clip sgd-4-evaluate";

#[run_by(after_python((4, SHARED_MEMORY), "fully_shard", ON_FOUR))]
fn on_four_ranks_all_ways_have_pythons_bits(group: &ProcessGroup, python: Saved) {
    expect_pythons_bits(group, ON_FOUR, python);
}

const MIXED: &str = "sgd-mixed-evaluate adamw-mixed-twice-clip";

fn python_on_rank_1() -> impl Fn(usize, Command) -> Command {
    common::rank_by(1, || common::python_rank("fully_shard", (1, 2, 0), MIXED))
}

#[run_by(common::processes_after_python(2, "fully_shard", MIXED, python_on_rank_1()))]
fn a_rank_in_rust_and_one_in_python_train_one_model() {
    expect_pythons_bits(&common::join(), MIXED, common::read("fully_shard-0.safetensors"));
}
