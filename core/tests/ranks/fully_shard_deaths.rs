//! A rank dies while it trains or saves a sharded model, and the others name it.

use crate::prelude::*;
use nix::sys::signal::{Signal, raise};

/// The rank that dies. It is neither the first nor the last.
const MORTAL: usize = 1;

/// Far below the time that the ranks wait for one that lives.
const SOON: Duration = Duration::from_secs(10);

/// When a rank dies in a step.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Phase {
    Gather,
    Forward,
    Backward,
    Reduce,
    Save,
    SaveParts,
}

/// A file whose last change is the time of death.
const DEATH: &str = "death";

fn die() {
    fs::write(DEATH, "").unwrap();
    raise(Signal::SIGKILL).unwrap();
}

/// How often the others still see this rank do something.
static MOMENTS: AtomicUsize = AtomicUsize::new(usize::MAX);

extern "C" fn die_at_the_last_moment() {
    if MOMENTS.fetch_sub(1, Ordering::Relaxed) == 0 {
        die();
    }
}

/// A layer that is computed again in the backward pass.
#[derive(Debug)]
struct Layer {
    linear: nn::Linear,
    /// The number of the call in which this rank dies.
    last_call: Option<usize>,
    calls: AtomicUsize,
}

impl ModuleT for Layer {
    fn forward_t(&self, xs: &Tensor, train: bool) -> Tensor {
        if self.last_call == Some(self.calls.fetch_add(1, Ordering::Relaxed)) {
            die();
        }
        self.linear.forward_t(xs, train).tanh()
    }
}

fn step(group: &ProcessGroup, phase: Option<Phase>, path: &Path) -> Result<()> {
    let vs = VarStore::new(Device::Cpu);
    // Gathered once, so that only gradients are exchanged in the backward pass.
    let options = FullyShardOptions { reshard_after_forward: false.into(), ..Default::default() };
    let sharding = FullyShard::new(&vs, group, options);
    let last_call = [Phase::Forward, Phase::Backward].iter().position(|it| phase == Some(*it));
    let layer = |path: &nn::Path<'_>| {
        let linear = nn::linear(path, 90, 90, Default::default());
        CheckpointWrapper::new(Layer { linear, last_call, calls: AtomicUsize::new(0) })
    };
    let model = sharding
        .root(|root| (0..3).fold(nn::seq_t(), |net, i| net.add(sharding.shard(root / i, layer))))?;
    let mut optimizer = Sgd::new(&vs, SgdOptions::default())?;
    if phase == Some(Phase::Gather) {
        die();
    }
    let loss = model.f_forward_t(&Tensor::ones([4, 90], FLOAT_CPU), true)?;
    if phase == Some(Phase::Reduce) {
        MOMENTS.store(1, Ordering::Relaxed);
    }
    model.backward(&loss.mean(Kind::Float))?;
    optimizer.step()?;
    match phase {
        Some(Phase::Save) => MOMENTS.store(9, Ordering::Relaxed),
        Some(Phase::SaveParts) => MOMENTS.store(2, Ordering::Relaxed),
        _ => {}
    }
    checkpoint::save(path, &vs, group)
}

fn dies_in(phase: Phase) {
    let group = common::join();
    let directory = tempfile::tempdir().unwrap();
    let end = if phase == Phase::SaveParts { "index.json" } else { "safetensors" };
    let path = directory.path().join(format!("model.{end}"));
    step(&group, None, &path).unwrap();
    let files = || -> BTreeMap<_, _> {
        let files = fs::read_dir(directory.path()).unwrap().map(|it| it.unwrap().path());
        files.map(|path| (path.clone(), fs::read(path).unwrap())).collect()
    };
    let before = files();
    c10d_sys::probe_shared_memory(die_at_the_last_moment);
    let phase = (group.rank() == MORTAL).then_some(phase);
    let error = step(&group, phase, &path).unwrap_err().to_string();
    let delay = fs::metadata(DEATH).unwrap().modified().unwrap().elapsed().unwrap();
    assert!(error.contains("rank 1 (pid") && delay < SOON, "after {delay:?}: {error}");
    let mut left = files();
    // Parts of the next version, which no index names.
    left.retain(|path, _| !path.display().to_string().contains("/model-1-"));
    assert_eq!(left, before);
}

macro_rules! deaths {
    ($(fn $test:ident() = $phase:ident;)*) => {$(
        #[run_by(common::processes_with(3, common::mortal(MORTAL)))]
        fn $test() {
            dies_in(Phase::$phase);
        }
    )*};
}

deaths! {
    fn a_rank_that_dies_before_it_gathers_is_named() = Gather;
    fn a_rank_that_dies_in_a_forward_pass_is_named() = Forward;
    fn a_rank_that_dies_in_a_backward_pass_is_named() = Backward;
    fn a_rank_that_dies_while_gradients_are_reduced_is_named() = Reduce;
    fn a_rank_that_dies_while_the_model_is_saved_is_named_and_the_old_file_stays() = Save;
    fn a_rank_that_dies_while_parts_are_saved_is_named_and_the_old_ones_stay() = SaveParts;
}
