//! Flags of libtorch's global context.

use crate::ffi;

/// `torch.backends.cudnn.deterministic = enabled`
pub fn set_cudnn_deterministic(enabled: bool) {
    ffi::c10d_set_cudnn_deterministic(enabled);
}
