//! Any other hook, working in 16 bits.

use super::{CommHook, Finish, GradBucket};
use crate::distributed::ProcessGroup;
use crate::{Error, Result};
use tch::Kind;

/// Hands gradients to `hook` as `float16` and what it gives on in their own kind.
/// `default_hooks.fp16_compress_wrapper`
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

/// Hands gradients to `hook` as `bfloat16` and what it gives on in their own kind.
/// `default_hooks.bf16_compress_wrapper`
pub fn bf16_compress_wrapper<H: CommHook>(hook: H) -> CompressWrapper<H> {
    CompressWrapper { name: "bf16_compress_wrapper", kind: Kind::BFloat16, hook }
}

/// What [`fp16_compress_wrapper`] and [`bf16_compress_wrapper`] make.
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
        let compressed = buffer.f_to_kind(self.kind).map_err(Error::tensor("compression"))?;
        bucket.set_buffer(&compressed)?;
        let finish = self.hook.start(group, bucket)?;
        Ok(Box::new(move || {
            buffer.f_copy_(&finish()?).map_err(Error::tensor("decompression"))?;
            Ok(buffer)
        }))
    }
}
