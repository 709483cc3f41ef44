//! PyTorch's `default_hooks`: the mean of the gradients over the ranks, and hooks that work in 16 bits.

use super::{CommHook, Finish, GradBucket};
use crate::Result;
use crate::distributed::{ProcessGroup, ReduceOp};
use c10d_sys::arithmetic::div_number_;
use tch::Kind;

/// Divides by the number of ranks, then sums: the same as without a hook. `default_hooks.allreduce_hook`
#[derive(Debug, Clone, Copy, Default)]
pub struct AllReduce;

impl CommHook for AllReduce {
    fn name(&self) -> String {
        "allreduce_hook".into()
    }

    fn start(&mut self, group: &ProcessGroup, bucket: &mut GradBucket<'_>) -> Result<Finish> {
        let mut gradients = bucket.buffer()?;
        // First, to keep half-precision sums from overflowing.
        div_number_(&mut gradients, group.world_size() as f64)?;
        let mean = group.all_reduce_async(gradients, ReduceOp::Sum)?;
        Ok(Box::new(move || mean.wait()))
    }
}

/// Exchanges gradients as `float16`: half the bytes of `float32`, 11 bits of precision, at most
/// 65,504. `default_hooks.fp16_compress_hook`
#[derive(Debug, Clone, Copy, Default)]
pub struct Fp16Compress;

/// Exchanges gradients as `bfloat16`: half the bytes of `float32`, its range, 8 bits of precision.
/// `default_hooks.bf16_compress_hook`
///
/// PyTorch requires NCCL 2.10 for this, and every supported libtorch has it.
#[derive(Debug, Clone, Copy, Default)]
pub struct Bf16Compress;

impl CommHook for Fp16Compress {
    fn name(&self) -> String {
        "fp16_compress_hook".into()
    }

    fn start(&mut self, group: &ProcessGroup, bucket: &mut GradBucket<'_>) -> Result<Finish> {
        fp16_compress_wrapper(AllReduce).start(group, bucket)
    }
}

impl CommHook for Bf16Compress {
    fn name(&self) -> String {
        "bf16_compress_hook".into()
    }

    fn start(&mut self, group: &ProcessGroup, bucket: &mut GradBucket<'_>) -> Result<Finish> {
        bf16_compress_wrapper(AllReduce).start(group, bucket)
    }
}

/// Passes gradients to `hook` as `float16` and converts its results back. `default_hooks.fp16_compress_wrapper`
///
/// ```
/// use tch_parallel::distributed::hooks::{self, CommHook, PowerSgd, PowerSgdOptions};
///
/// let hook = hooks::fp16_compress_wrapper(PowerSgd::new(PowerSgdOptions::default())?);
/// assert!(hook.name().starts_with("fp16_compress_wrapper(powerSGD_hook"));
/// # Ok::<(), tch_parallel::Error>(())
/// ```
pub fn fp16_compress_wrapper<H: CommHook>(hook: H) -> CompressWrapper<H> {
    CompressWrapper { name: "fp16_compress_wrapper", kind: Kind::Half, hook }
}

/// Passes gradients to `hook` as `bfloat16` and converts its results back. `default_hooks.bf16_compress_wrapper`
pub fn bf16_compress_wrapper<H: CommHook>(hook: H) -> CompressWrapper<H> {
    CompressWrapper { name: "bf16_compress_wrapper", kind: Kind::BFloat16, hook }
}

/// The hook that [`fp16_compress_wrapper`] and [`bf16_compress_wrapper`] make.
#[derive(Debug, Clone)]
pub struct CompressWrapper<H> {
    name: &'static str,
    kind: Kind,
    hook: H,
}

impl<H: CommHook> CommHook for CompressWrapper<H> {
    fn name(&self) -> String {
        format!("{}({})", self.name, self.hook.name())
    }

    fn start(&mut self, group: &ProcessGroup, bucket: &mut GradBucket<'_>) -> Result<Finish> {
        let mut buffer = bucket.buffer()?;
        bucket.set_buffer(&buffer.f_to_kind(self.kind)?)?;
        let finish = self.hook.start(group, bucket)?;
        Ok(Box::new(move || {
            buffer.f_copy_(&finish()?)?;
            Ok(buffer)
        }))
    }
}
