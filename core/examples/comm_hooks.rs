//! What communication hooks save, and what they lose.
//!
//! ```text
//! cargo launch -n 2 -- cargo run -rq -p tch-parallel --example comm_hooks
//! ```

use anyhow::{Context, Result};
use exhibit_kit::weights;
use report::say;
use std::sync::{Arc, atomic::AtomicUsize, atomic::Ordering};
use tch::{Kind, Tensor, nn, nn::VarStore};
use tch_parallel::data::{DataLoader, DistributedSampler, Mnist, Split};
use tch_parallel::distributed::hooks::{
    AllReduce, CommHook, Finish, GradBucket, PowerSgd, PowerSgdOptions, bf16_compress_wrapper,
    fp16_compress_wrapper,
};
use tch_parallel::distributed::{DdpOptions, DistributedDataParallel, ProcessGroup};
use tch_parallel::nn::{LinearOptions, linear};

/// With the same weights and the same batch in each, so that all have the same gradient.
const STEPS: usize = 32;

/// PowerSGD exchanges whole gradients so often.
const WHOLE: usize = 2;

fn main() -> Result<()> {
    let group = ProcessGroup::from_env()?;
    let counted = Counted::default();
    let exact = gradients(&group, counted.clone())?;
    let report = |name: &str, bytes: usize, gradients: Vec<Tensor>| -> Result<()> {
        let of_one = relative_error(&gradients[WHOLE], &exact[0])?;
        let mean = Tensor::stack(&gradients[WHOLE..], 0).mean_dim(0, false, Kind::Float);
        let of_all = relative_error(&mean, &exact[0])?;
        say(&group, format!("{name:28} {bytes:7}   {of_one:.5}     {of_all:.5}"));
        Ok(())
    };
    say(&group, format!("{:28}   bytes   one step   mean of {}", "", STEPS - WHOLE));
    report("average", counted.bytes_a_step(), gradients(&group, AllReduce)?)?;

    let counted = Counted::default();
    let rounded = gradients(&group, fp16_compress_wrapper(counted.clone()))?;
    report("fp16", counted.bytes_a_step(), rounded)?;

    let counted = Counted::default();
    let rounded = gradients(&group, bf16_compress_wrapper(counted.clone()))?;
    report("bf16", counted.bytes_a_step(), rounded)?;

    let plain = PowerSgdOptions { start_power_sgd_iter: WHOLE as u64, ..Default::default() };
    for (matrix_approximation_rank, use_error_feedback) in [(1, true), (1, false), (2, true)] {
        let options = PowerSgdOptions { matrix_approximation_rank, use_error_feedback, ..plain };
        let hook = PowerSgd::new(options)?;
        let approximated = gradients(&group, hook.clone())?;
        let bytes = hook.compression_stats().numel_after_compression as usize * 4 / (STEPS - WHOLE);
        let feedback = if use_error_feedback { "" } else { ", no feedback" };
        let name = format!("PowerSGD, rank {matrix_approximation_rank}{feedback}");
        report(&name, bytes, approximated)?;
    }
    Ok(())
}

/// The averaged gradient of each step, all parameters in one tensor.
fn gradients(group: &ProcessGroup, hook: impl CommHook + 'static) -> Result<Vec<Tensor>> {
    tch::manual_seed(0);
    let vs = VarStore::new(group.device());
    let layer =
        |name, inputs, outputs| linear(vs.root() / name, inputs, outputs, LinearOptions::default());
    let net = nn::seq_t()
        .add_fn(|images| images.flat_view())
        .add(layer("first", 784, 128))
        .add_fn(|x| x.relu())
        .add(layer("last", 128, 10));
    let options = DdpOptions { comm_hook: Some(Box::new(hook)), ..Default::default() };
    let model = DistributedDataParallel::with_options(net, &vs, group, options)?;

    let sampler = DistributedSampler::new(group, 42);
    let loader = DataLoader::new(Mnist::embedded(Split::Train)?, sampler, 128)?;
    let mut batches = loader.epoch(0)?.to(group.device());
    let (images, labels) = batches.next().context("there are digits")??;
    let mut steps = Vec::new();
    for _ in 0..STEPS {
        vs.trainable_variables().iter_mut().for_each(Tensor::zero_grad);
        model.backward(&model.f_forward_t(&images, true)?.cross_entropy_for_logits(&labels))?;
        steps.push(weights::gradients(&vs));
    }
    Ok(steps)
}

fn relative_error(gradient: &Tensor, exact: &Tensor) -> Result<f64> {
    Ok(f64::try_from((gradient - exact).norm() / exact.norm())?)
}

/// Averages, and counts what is exchanged.
#[derive(Debug, Clone, Default)]
struct Counted {
    bytes: Arc<AtomicUsize>,
}

impl Counted {
    fn bytes_a_step(&self) -> usize {
        self.bytes.load(Ordering::Relaxed) / STEPS
    }
}

// ANCHOR: counted
impl CommHook for Counted {
    fn name(&self) -> String {
        "count and average".into()
    }

    fn start(
        &mut self,
        group: &ProcessGroup,
        bucket: &mut GradBucket<'_>,
    ) -> tch_parallel::Result<Finish> {
        let buffer = bucket.buffer()?;
        let bytes = buffer.numel() * buffer.kind().elt_size_in_bytes();
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        AllReduce.start(group, bucket)
    }
}
// ANCHOR_END: counted
