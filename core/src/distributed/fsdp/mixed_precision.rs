//! The kinds of numbers in which a sharded model computes and its gradients are reduced.

use crate::{Result, Tensors};
use tch::Kind;
use tch_parallel_base::options;

options! {
    /// `torch.distributed.fsdp.MixedPrecisionPolicy`, with PyTorch's defaults. `None` changes
    /// nothing. The shards, and so the optimizer, keep the kind in which the model was built.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct MixedPrecisionPolicy {
        /// The kind of the gathered parameters, and so of what the layers compute.
        pub param_dtype: Option<Kind> = None,
        /// The kind in which gradients are reduced, and accumulated before. `None`: that of the gathered parameters.
        pub reduce_dtype: Option<Kind> = None,
        /// The kind of a block's outputs.
        pub output_dtype: Option<Kind> = None,
        /// Whether to cast a block's inputs to `param_dtype`.
        pub cast_forward_inputs: bool = true,
    }
}

/// Casts all floating-point tensors to this kind.
pub(crate) fn cast(tensors: &mut impl Tensors, kind: Option<Kind>) -> Result<()> {
    let Some(kind) = kind else { return Ok(()) };
    let mut outcome = Ok(());
    tensors.visit(&mut |tensor| {
        if tensor.is_floating_point() && outcome.is_ok() {
            outcome = tensor.f_to_kind(kind).map(|cast| *tensor = cast);
        }
    });
    Ok(outcome?)
}
