//! The mean of the gradients over the ranks, exchanged in 16 bits.

use super::allreduce::mean;
use super::{CommHook, Finish, GradBucket};
use crate::distributed::ProcessGroup;
use crate::{Error, Result};
use tch::Kind;

/// Exchanges gradients as `float16`: half the bytes of `float32`, 11 bits of precision, nothing
/// above 65,504. `default_hooks.fp16_compress_hook`
#[derive(Debug, Clone, Copy, Default)]
pub struct Fp16Compress;

/// Exchanges gradients as `bfloat16`: half the bytes of `float32`, its range, 8 bits of precision.
/// `default_hooks.bf16_compress_hook`
///
/// With NCCL, PyTorch asks for version 2.10 or later, which every libtorch that this library takes
/// has.
#[derive(Debug, Clone, Copy, Default)]
pub struct Bf16Compress;

impl CommHook for Fp16Compress {
    fn name(&self) -> String {
        "fp16_compress_hook".into()
    }

    fn start(&mut self, group: &ProcessGroup, bucket: &mut GradBucket<'_>) -> Result<Finish> {
        compress(Kind::Half, group, bucket)
    }
}

impl CommHook for Bf16Compress {
    fn name(&self) -> String {
        "bf16_compress_hook".into()
    }

    fn start(&mut self, group: &ProcessGroup, bucket: &mut GradBucket<'_>) -> Result<Finish> {
        compress(Kind::BFloat16, group, bucket)
    }
}

/// `_compress_hook`: rounds, divides, sums, all in `kind`.
fn compress(kind: Kind, group: &ProcessGroup, bucket: &GradBucket<'_>) -> Result<Finish> {
    let mut buffer = bucket.buffer()?;
    let compressed = buffer.f_to_kind(kind).map_err(Error::tensor("compression"))?;
    let mean = mean(group, compressed)?;
    Ok(Box::new(move || {
        buffer.f_copy_(&mean.wait()?).map_err(Error::tensor("decompression"))?;
        Ok(buffer)
    }))
}
