//! A sharded model and the same model whole, trained alike.

use crate::prelude::*;

#[derive(Debug)]
pub enum Block<M> {
    Sharded(FsdpModule<M>),
    Whole(M),
}

impl<M> Block<M> {
    pub fn new(
        path: &nn::Path<'_>,
        sharding: Option<&FullyShard<'_>>,
        build: impl FnOnce(&nn::Path<'_>) -> M,
    ) -> Self {
        match sharding {
            Some(sharding) => Block::Sharded(sharding.shard(path, build)),
            None => Block::Whole(build(path)),
        }
    }

    pub fn forward(&self, xs: &Tensor, f: impl FnOnce(&M, Tensor) -> Tensor) -> Tensor {
        match self {
            Block::Sharded(unit) => unit.call(xs.shallow_clone(), f),
            Block::Whole(module) => f(module, xs.shallow_clone()),
        }
    }

    pub fn unit(&self) -> &FsdpModule<M> {
        let Block::Sharded(unit) = self else { panic!("the block is not sharded") };
        unit
    }
}

/// Two layers, whose rows two ranks cannot share evenly.
#[derive(Debug)]
pub struct Mlp {
    pub up: nn::Linear,
    pub down: nn::Linear,
}

fn mlp(path: &nn::Path<'_>) -> Mlp {
    let up = nn::linear(path / "up", 5, 7, Default::default());
    Mlp { up, down: nn::linear(path / "down", 7, 5, Default::default()) }
}

/// Three blocks between a parameter and a layer of the root's.
#[derive(Debug)]
pub struct Net {
    position: Tensor,
    pub blocks: Vec<Block<Mlp>>,
    pub head: nn::Linear,
}

impl Net {
    pub fn new(root: &nn::Path<'_>, sharding: Option<&FullyShard<'_>>) -> Self {
        let position = root.ones("position", &[5]);
        let block = |i| Block::new(&(root / "blocks" / i), sharding, mlp);
        let blocks = (0..3).map(block).collect();
        Net { position, blocks, head: nn::linear(root / "head", 5, 2, Default::default()) }
    }

    pub fn first(&self, xs: &Tensor) -> Tensor {
        self.block(0, &(xs + &self.position))
    }

    pub fn block(&self, number: usize, xs: &Tensor) -> Tensor {
        let pass = |mlp: &Mlp, xs: Tensor| mlp.down.forward(&mlp.up.forward(&xs).tanh()).tanh();
        self.blocks[number].forward(xs, pass)
    }

    pub fn loss(&self, xs: &Tensor) -> Tensor {
        squares(&self.forward_t(xs, true))
    }
}

impl ModuleT for Net {
    fn forward_t(&self, xs: &Tensor, _train: bool) -> Tensor {
        self.head.forward(&self.block(2, &self.block(1, &self.first(xs))))
    }
}

/// A store of its own, and the sharded model in it.
pub fn shard<M>(
    group: &ProcessGroup,
    options: FullyShardOptions,
    build: impl FnOnce(&nn::Path<'_>, &FullyShard<'_>) -> M,
) -> (VarStore, FsdpModule<M>) {
    let vs = VarStore::new(Device::Cpu);
    let sharding = FullyShard::new(&vs, group, options);
    let model = sharding.root(|root| build(root, &sharding)).unwrap();
    (vs, model)
}

/// A sharded model, and the same one whole, whose gradients are averaged by hand.
pub struct Twins<M> {
    group: ProcessGroup,
    pub vs: VarStore,
    pub sharded: FsdpModule<M>,
    optimizer: Sgd,
    pub other: VarStore,
    pub whole: M,
    of_whole: Sgd,
}

impl<M> Twins<M> {
    pub fn new(
        group: &ProcessGroup,
        options: FullyShardOptions,
        build: impl Fn(&nn::Path<'_>, Option<&FullyShard<'_>>) -> M,
    ) -> Self {
        tch::manual_seed(1);
        let (vs, sharded) = shard(group, options, |root, sharding| build(root, Some(sharding)));
        let other = VarStore::new(Device::Cpu);
        tch::manual_seed(1);
        let whole = build(&other.root(), None);
        for (name, shard) in vs.variables() {
            assert_eq!(shard, own_rows(group, &other.variables()[&name]), "{name}");
        }
        let [optimizer, of_whole] = [&vs, &other].map(|vs| sgd(vs, 0.1));
        Twins { group: group.clone(), vs, sharded, optimizer, other, whole, of_whole }
    }

    pub fn backward(&self, sharded: &Tensor, whole: &Tensor) {
        expect_close("loss", sharded, whole);
        self.sharded.backward(sharded).unwrap();
        whole.backward();
    }

    pub fn pass(&self, xs: &Tensor, loss: impl Fn(&M, &Tensor) -> Tensor) {
        let sharded = self.sharded.forward(xs.shallow_clone(), |module, xs| loss(module, &xs));
        self.backward(&sharded.unwrap(), &loss(&self.whole, xs));
    }

    /// Averages the whole model's gradients, and compares them and the weights after a step.
    pub fn step(&mut self) {
        let shards = self.vs.variables();
        // In the same order on all ranks.
        for (name, whole) in self.other.variables().into_iter().collect::<BTreeMap<_, _>>() {
            let (own, mut gradient) = (shards[&name].grad(), whole.grad());
            assert_eq!(own.defined(), gradient.defined(), "{name}");
            if gradient.defined() {
                self.group.all_reduce(&mut gradient, ReduceOp::Avg).unwrap();
                expect_close(&name, &own, &own_rows(&self.group, &gradient));
            }
        }
        for optimizer in [&mut self.optimizer, &mut self.of_whole] {
            optimizer.step().unwrap();
            optimizer.zero_grad().unwrap();
        }
        let weights = self.sharded.full_state_dict().unwrap();
        for (name, whole) in self.other.variables() {
            expect_close(&name, &weights[&name], &whole);
            expect_close(&name, &shards[&name], &own_rows(&self.group, &whole));
        }
    }
}

/// One with each value of `reshard_after_forward` that is not a number.
pub fn each_way<M>(
    group: &ProcessGroup,
    build: impl Fn(&nn::Path<'_>, Option<&FullyShard<'_>>) -> M,
) -> [Twins<M>; 3] {
    [ReshardAfterForward::default(), true.into(), false.into()].map(|reshard_after_forward| {
        Twins::new(group, FullyShardOptions { reshard_after_forward, ..Default::default() }, &build)
    })
}

/// `torch.testing.assert_close`, with its tolerances. Gradients of several passes differ in their
/// last bits: shards get a sum of means, the whole model a mean of sums.
pub fn expect_close(what: &str, found: &Tensor, expected: &Tensor) {
    assert!(found.allclose(expected, 1.3e-6, 1e-6, false), "{what}: {found} is not {expected}");
}

pub fn own_rows(group: &ProcessGroup, whole: &Tensor) -> Tensor {
    let (rows, ranks) = (whole.size()[0], group.world_size() as i64);
    let each = (rows + ranks - 1) / ranks;
    let begin = (each * group.rank() as i64).min(rows);
    whole.narrow(0, begin, each.min(rows - begin))
}

pub fn batch(group: &ProcessGroup, step: i64) -> Tensor {
    numbers(group, step, [3, 5])
}

pub fn numbers(group: &ProcessGroup, step: i64, size: [i64; 2]) -> Tensor {
    let offset = step * 10 + group.rank() as i64;
    (Tensor::arange(size.iter().product::<i64>(), FLOAT_CPU) * 0.3 + offset).sin().view(size)
}

pub fn squares(output: &Tensor) -> Tensor {
    output.square().mean(Kind::Float)
}
